// SPDX-License-Identifier: GPL-2.0-only
/*
 * sockets COUNT: makes so many connections that stay, and so many sockets in
 * TIME_WAIT; says "made", and keeps them until its input ends.  One that stays
 * is made by TCP_REPAIR, so it has no other end here, as on a real host.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PORT = 8100, PORTS = 20000 };	/* of one address */

static int open_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		err(1, "socket");
	return fd;
}

static void connect_to(int fd, int net, int number)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	to.sin_addr.s_addr = htonl(0x7f000001 | net << 16 | (number / PORTS + 1) << 8);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "connect %d", number);
}

static void stay(int number)
{
	const int on = 1;
	int fd = open_socket();

	if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)))
		err(1, "TCP_REPAIR");
	connect_to(fd, 1, number);
}

static void end(int server, int number)
{
	int peer, fd = open_socket();

	connect_to(fd, 2, number);
	peer = accept(server, NULL, NULL);
	if (peer < 0)
		err(1, "accept");
	close(fd);
	close(peer);
}

int main(int argc, char **argv)
{
	const struct rlimit most = { 1 << 22, 1 << 22 };
	const struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int i, server = open_socket(), count = argc > 1 ? atoi(argv[1]) : 0;

	if (setrlimit(RLIMIT_NOFILE, &most))
		err(1, "setrlimit");
	if (bind(server, (struct sockaddr *)&any, sizeof(any)) || listen(server, 128))
		err(1, "listen");
	for (i = 0; i < count; i++)
		stay(i);
	for (i = 0; i < count; i++)
		end(server, i);
	close(server);
	puts("made");
	fflush(stdout);
	return read(0, &i, 1) < 0;
}
