// SPDX-License-Identifier: GPL-2.0-only
/*
 * load: HTTP clients that never tire, each request on a connection of its own,
 * and how long each took from connect() to the end of the answer.
 *
 * wrk starts its clock when the connection is there, and ab gives up after ten
 * that were refused; here both are what is measured.
 *
 * usage: load ADDRESS PORT CLIENTS PAUSE_MS SECONDS REQUESTS HISTOGRAM
 *
 * Each client pauses between requests, so that a machine with few CPUs gets to
 * reload.  It ends when there were REQUESTS and a SIGTERM has come, or after
 * SECONDS.  HISTOGRAM gets lines
 * "microseconds,count": bucket by its upper limit, 2 % apart.  On stdout: one
 * JSON object.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS		1024
#define BUCKET_GROWTH	1.02
#define GIVE_UP_US	10000000
#define MAX_ERRNO	256
/* what is no errno */
#define NO_ANSWER	0
#define BAD_ANSWER	1

static const char request[] =
	"GET / HTTP/1.0\r\nHost: bench\r\n\r\n";

struct client {
	int fd;
	long long begin, next;
	size_t got;
	char head[16];		/* "HTTP/1.x 200" is all that matters */
};

static struct sockaddr_in target;
static struct client *clients;
static int poll_fd;
static long long pause_us;
static unsigned long long buckets[BUCKETS], errors[MAX_ERRNO];
static unsigned long long done, failed, longest, running;
static long long longest_began;
static volatile sig_atomic_t told;

static long long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void tell(int number)
{
	told = number;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void finish(struct client *client, int error)
{
	long long now = now_us();
	unsigned long long took = now - client->begin;
	int bucket = took ? ceil(log(took) / log(BUCKET_GROWTH)) : 0;

	close(client->fd);
	client->fd = -1;
	client->next = now + pause_us;
	running--;
	if (error >= 0) {
		failed++;
		errors[error < MAX_ERRNO ? error : BAD_ANSWER]++;
		return;
	}
	done++;
	buckets[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
	if (took > longest) {
		longest = took;
		longest_began = client->begin;
	}
}

static void begin(struct client *client)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = client,
	};

	memset(client, 0, sizeof(*client));
	client->begin = now_us();
	client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (client->fd < 0)
		die("socket");
	running++;
	if (connect(client->fd, (struct sockaddr *)&target, sizeof(target)) &&
	    errno != EINPROGRESS) {
		finish(client, errno);
		return;
	}
	if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, client->fd, &event))
		die("epoll_ctl");
}

/* The socket can be written or read; the first time, it is connected. */
static void advance(struct client *client, unsigned int events)
{
	char data[4096];
	ssize_t n;

	if (client->fd < 0)
		return;
	if (client->got == 0 && events & EPOLLOUT) {
		n = send(client->fd, request, sizeof(request) - 1,
			 MSG_NOSIGNAL);
		if (n < 0) {
			/* what connect() met, before what send() makes of it */
			socklen_t size = sizeof(int);
			int error = 0, later = errno;

			getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error,
				   &size);
			finish(client, error ? error : later);
			return;
		}
		client->got = 1;
	}
	for (;;) {
		n = recv(client->fd, data, sizeof(data), 0);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			finish(client, errno);
			return;
		}
		if (n == 0)
			break;
		/* an answer this short comes whole */
		if (client->got == 1)
			memcpy(client->head, data, n < 15 ? n : 15);
		client->got += n;
	}
	if (client->got <= 1)
		finish(client, NO_ANSWER);
	else if (strncmp(client->head, "HTTP/1.", 7) ||
		 strncmp(client->head + 8, " 200", 4))
		finish(client, BAD_ANSWER);
	else
		finish(client, -1);
}

static void report(const char *histogram, double seconds)
{
	FILE *file = fopen(histogram, "w");
	const char *comma = "";
	int i;

	if (!file)
		die(histogram);
	fprintf(file, "microseconds,count\n");
	for (i = 0; i < BUCKETS; i++)
		if (buckets[i])
			fprintf(file, "%.0f,%llu\n", pow(BUCKET_GROWTH, i),
				buckets[i]);
	if (fclose(file))
		die(histogram);
	printf("{\"answered\": %llu, \"failed\": %llu, \"longest_us\": %llu, "
	       "\"longest_began_us\": %lld, \"seconds\": %.3f, "
	       "\"errors\": {", done, failed, longest, longest_began, seconds);
	for (i = 0; i < MAX_ERRNO; i++) {
		if (!errors[i])
			continue;
		printf("%s\"%s\": %llu", comma, i == NO_ANSWER ? "no answer" :
		       i == BAD_ANSWER ? "not 200" : strerror(i), errors[i]);
		comma = ", ";
	}
	printf("}}\n");
}

int main(int argc, char **argv)
{
	struct epoll_event events[256];
	unsigned long long limit;
	long long start, end;
	int count, i, n;

	if (argc != 8) {
		fprintf(stderr, "usage: load ADDRESS PORT CLIENTS PAUSE_MS "
			"SECONDS REQUESTS HISTOGRAM\n");
		return 2;
	}
	signal(SIGTERM, tell);
	target.sin_family = AF_INET;
	target.sin_port = htons(atoi(argv[2]));
	count = atoi(argv[3]);
	start = now_us();
	pause_us = atoll(argv[4]) * 1000;
	end = start + atoll(argv[5]) * 1000000;
	limit = strtoull(argv[6], NULL, 10);
	clients = calloc(count, sizeof(*clients));
	poll_fd = epoll_create1(0);
	if (inet_pton(AF_INET, argv[1], &target.sin_addr) != 1 || count < 1 ||
	    !clients || poll_fd < 0)
		die("load");
	for (i = 0; i < count; i++)
		clients[i].fd = -1;
	for (;;) {
		long long now = now_us();
		int over = now >= end || (told && done + failed >= limit);
		long long wait_us = 100000;

		for (i = 0; i < count; i++) {
			struct client *client = &clients[i];

			if (client->fd >= 0 &&
			    now - client->begin > GIVE_UP_US)
				finish(client, ETIMEDOUT);
			if (client->fd >= 0 || over)
				continue;
			if (now >= client->next)
				begin(client);
			else if (client->next - now < wait_us)
				wait_us = client->next - now;
		}
		if (!running && over)
			break;
		n = epoll_wait(poll_fd, events, 256, (wait_us + 999) / 1000);
		for (i = 0; i < n; i++)
			advance(events[i].data.ptr, events[i].events);
	}
	report(argv[7], (now_us() - start) / 1e6);
	return 0;
}
