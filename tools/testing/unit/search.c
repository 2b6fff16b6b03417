// SPDX-License-Identifier: GPL-2.0-only
/* States and the events between them, all of them. */
#include <stdio.h>
#include <stdlib.h>

#include "search.h"
#include "unit.h"

#define NOWHERE		(~0U)

/* States are numbered in the order in which they are found, which is that of
 * their distance.  The events of state n are edges first[n] .. first[n + 1].
 */
struct search {
	const struct model *model;
	u8 *states;
	u32 nr;
	u32 *from, *hash, hash_mask;
	u16 *by;
	u32 *first;
	struct edge {
		u32 to;
		u32 event;
	} *edges;
	u64 nr_edges, room;
};

const void *search_state(const struct search *s, u32 n)
{
	return s->states + (size_t)n * s->model->size;
}

u32 search_count(const struct search *s)
{
	return s->nr;
}

void search_free(struct search *s)
{
	if (!s)
		return;
	free(s->states);
	free(s->from);
	free(s->hash);
	free(s->by);
	free(s->first);
	free(s->edges);
	free(s);
}

static u32 hash_of(const struct search *s, const u8 *state)
{
	u64 h = 0, word;
	u32 i, n;

	for (i = 0; i < s->model->size; i += n) {
		n = s->model->size - i < 8 ? s->model->size - i : 8;
		word = 0;
		memcpy(&word, state + i, n);
		h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 29;
	}
	return h & s->hash_mask;
}

/* The number of a state, a new one if it is not known; NOWHERE: too many */
static u32 number_of(struct search *s, const u8 *state, u32 from, u32 event)
{
	u32 h = hash_of(s, state);

	for (; s->hash[h]; h = (h + 1) & s->hash_mask)
		if (!memcmp(search_state(s, s->hash[h] - 1), state,
			    s->model->size))
			return s->hash[h] - 1;
	if (s->nr == s->model->most)
		return NOWHERE;
	memcpy(s->states + (size_t)s->nr * s->model->size, state,
	       s->model->size);
	s->from[s->nr] = from;
	s->by[s->nr] = event;
	s->hash[h] = ++s->nr;
	return s->nr - 1;
}

static void edge_add(struct search *s, u32 to, u32 event)
{
	if (s->nr_edges == s->room) {
		s->room = s->room ? 2 * s->room : 1 << 16;
		s->edges = realloc(s->edges, s->room * sizeof(*s->edges));
		if (!s->edges) {
			printf("Bail out! out of memory\n");
			exit(2);
		}
	}
	s->edges[s->nr_edges++] = (struct edge){ to, event };
}

struct trace {
	char text[900];
	size_t len;
};

static void trace_add(struct trace *t, const char *event)
{
	t->len += snprintf(t->text + t->len, sizeof(t->text) - t->len, "%s%s",
			   t->len ? ", " : "", event);
	if (t->len >= sizeof(t->text))
		t->len = sizeof(t->text) - 1;
}

/* The way to state @n */
static void trace_to(const struct search *s, struct trace *t, u32 n)
{
	if (!n)
		return;
	trace_to(s, t, s->from[n]);
	trace_add(t, s->model->name(s->by[n]));
}

/**
 * search_states() - find all states
 * @model: what can happen
 * @arg: passed to its functions
 * @start: the first state
 *
 * Return: the states, or NULL and unit_fail().
 */
struct search *search_states(const struct model *model, const void *arg,
			     const void *start)
{
	struct search *s = unit_alloc(1, sizeof(*s));
	u8 *state = unit_alloc(1, model->size);
	u32 n, event, to;

	s->model = model;
	for (s->hash_mask = 1; s->hash_mask < 2 * model->most;)
		s->hash_mask *= 2;
	s->hash = unit_alloc(s->hash_mask--, sizeof(*s->hash));
	s->states = unit_alloc(model->most, model->size);
	s->from = unit_alloc(model->most, sizeof(*s->from));
	s->by = unit_alloc(model->most, sizeof(*s->by));
	s->first = unit_alloc(model->most + 1, sizeof(*s->first));
	number_of(s, start, 0, 0);

	for (n = 0; n < s->nr; n++) {
		s->first[n] = s->nr_edges;
		for (event = 0; event < model->events; event++) {
			const char *fault = NULL;

			memcpy(state, search_state(s, n), model->size);
			if (!model->happen(arg, state, event, &fault))
				continue;
			to = fault ? 0 : number_of(s, state, n, event);
			if (fault) {
				struct trace t = {};

				trace_to(s, &t, n);
				trace_add(&t, model->name(event));
				unit_fail("%s: %s", fault, t.text);
			} else if (to == NOWHERE) {
				unit_fail("more states than %u", model->most);
			} else {
				edge_add(s, to, event);
				continue;
			}
			free(state);
			search_free(s);
			return NULL;
		}
	}
	free(state);
	s->first[s->nr] = s->nr_edges;
	unit_note("%u states, %llu events between them", s->nr,
		  (unsigned long long)s->nr_edges);
	if (s->nr >= model->least)
		return s;
	unit_fail("fewer states than %u: void", model->least);
	search_free(s);
	return NULL;
}

static bool waits(const struct search *s, const struct ending *ending, u32 n)
{
	return ending->waits(search_state(s, n), ending->which);
}

/* Tarjan's strongly connected components of the states that wait, without
 * recursion.  The component of a state goes to @component, NOWHERE for one
 * that does not wait.
 */
static void components(const struct search *s, const struct ending *ending,
		       u32 *component)
{
	struct frame {
		u32 n;
		u32 edge;
	} *frames = unit_alloc(s->nr, sizeof(*frames));
	u32 *stack = unit_alloc(s->nr, sizeof(*stack));
	u32 *index = unit_alloc(s->nr, sizeof(*index));
	u32 *low = unit_alloc(s->nr, sizeof(*low));
	u32 root, depth, height = 0, next = 1;

	memset(component, 0xff, s->nr * sizeof(*component));
	for (root = 0; root < s->nr; root++) {
		if (index[root] || !waits(s, ending, root))
			continue;
		depth = 0;
		frames[depth++] = (struct frame){ root, s->first[root] };
		index[root] = next;
		low[root] = next++;
		stack[height++] = root;
		while (depth) {
			struct frame *f = &frames[depth - 1];
			const struct edge *e;
			u32 n = f->n;

			if (f->edge < s->first[n + 1]) {
				e = &s->edges[f->edge++];
				if (!ending->allows(e->event, ending->which) ||
				    !waits(s, ending, e->to))
					continue;
				if (!index[e->to]) {
					frames[depth++] = (struct frame){
						e->to, s->first[e->to] };
					index[e->to] = next;
					low[e->to] = next++;
					stack[height++] = e->to;
				} else if (component[e->to] == NOWHERE &&
					   index[e->to] < low[n]) {
					low[n] = index[e->to];
				}
				continue;
			}
			if (low[n] == index[n]) {
				do
					component[stack[--height]] = n;
				while (stack[height] != n);
			}
			if (--depth && low[n] < low[frames[depth - 1].n])
				low[frames[depth - 1].n] = low[n];
		}
	}
	free(frames);
	free(stack);
	free(index);
	free(low);
}

/* The shortest way from @e->to back to @n within one component */
static void trace_round(const struct search *s, const struct ending *ending,
			const u32 *component, u32 n, const struct edge *e,
			struct trace *t)
{
	u32 *queue = unit_alloc(s->nr, sizeof(*queue));
	u32 *back = unit_alloc(s->nr, sizeof(*back));
	u32 *by = unit_alloc(s->nr, sizeof(*by));
	u32 head = 0, tail = 0, i;

	queue[tail++] = e->to;
	back[e->to] = e->to + 1;
	while (head < tail && !back[n]) {
		u32 m = queue[head++];

		for (i = s->first[m]; i < s->first[m + 1]; i++) {
			const struct edge *f = &s->edges[i];

			if (component[f->to] != component[n] || back[f->to] ||
			    !ending->allows(f->event, ending->which))
				continue;
			back[f->to] = m + 1;
			by[f->to] = f->event;
			queue[tail++] = f->to;
		}
	}
	trace_add(t, "and again and again:");
	trace_add(t, s->model->name(e->event));
	for (tail = 0; n != e->to; n = back[n] - 1)
		queue[tail++] = by[n];
	while (tail)
		trace_add(t, s->model->name(queue[--tail]));
	free(queue);
	free(back);
	free(by);
}

/**
 * search_ends() - does something come about, whatever happens meanwhile?
 * @s: all states
 * @ending: what has to come about
 * @time: the event by which time goes on
 *
 * It does not if there is a way round through states that wait for it on
 * which time goes on, or a set of them that nothing leads out of.
 *
 * Return: true, or unit_fail() with the way there and the way round.
 */
bool search_ends(const struct search *s, const struct ending *ending, u32 time)
{
	u32 *component = unit_alloc(s->nr, sizeof(*component));
	bool *left = unit_alloc(s->nr, sizeof(*left));
	u32 n, i, waiting = 0;
	struct trace t = {};
	bool ends = true;

	components(s, ending, component);
	for (n = 0; n < s->nr && ends; n++) {
		if (component[n] == NOWHERE)
			continue;
		waiting++;
		for (i = s->first[n]; i < s->first[n + 1] && ends; i++) {
			const struct edge *e = &s->edges[i];

			if (!ending->allows(e->event, ending->which))
				continue;
			if (component[e->to] != component[n]) {
				left[component[n]] = true;
				continue;
			}
			if (e->event != time)
				continue;
			trace_to(s, &t, n);
			trace_round(s, ending, component, n, e, &t);
			ends = unit_fail("%s: %s", ending->fault, t.text);
		}
	}
	for (n = 0; n < s->nr && ends; n++) {
		if (component[n] == NOWHERE || left[component[n]])
			continue;
		trace_to(s, &t, n);
		ends = unit_fail("%s, no way on: %s", ending->fault, t.text);
	}
	free(left);
	free(component);
	if (ends && !waiting) {
		/* not as its fault, which a control would take for its own */
		unit_note("%s", ending->fault);
		return unit_fail("never to be waited for: void");
	}
	return ends;
}
