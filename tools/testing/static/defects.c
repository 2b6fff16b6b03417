// SPDX-License-Identifier: GPL-2.0-only
/* Not built.  The static checks have to report the lines that name a check of
 * theirs, and no other.
 */
#include <stdlib.h>
#include <string.h>

struct thing {
	int	n;
	int	more[7];
};

void kfree(void *p);
struct thing *thing_find(void);

int thing_drop(struct thing *t)
{
	kfree(t);
	return t->n;			/* kfree.cocci unix.Malloc */
}

void thing_forget(struct thing *t)
{
	if (t)
		kfree(t);		/* ifnullfree.cocci */
}

int thing_wait(struct thing *t)
{
	if (!t)
		return t->n;		/* deref_null.cocci NullDereference */
	return 0;
}

void thing_clear(struct thing *t)
{
	memset(t, sizeof(*t), 0);	/* bugprone-suspicious-memset-usage */
}

int thing_twice(void)
{
	char *p = malloc(8);

	free(p);
	free(p);			/* unix.Malloc */
	return 0;
}
