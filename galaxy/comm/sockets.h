// comm/sockets.h: TCP sockets: listen, accept, connect, read and write with deadlines. All sockets are non-blocking and
// close-on-exec.
//
//     GxEndpoint e;
//     gx_endpoint_numeric(&e, "127.0.0.1", 29500);
//     int fd = gx_socket_connect(&e, gx_seconds() + 10);            // -1: errno says why
//     if (fd < 0 || !gx_socket_write(fd, "hello", 5, gx_seconds() + 10)) ...
//     gx_socket_close(&fd);
//
// IPv4 and IPv6. Deadlines are times of gx_seconds. The system's look-up of a name has no deadline.
#ifndef GX_SOCKETS_H
#define GX_SOCKETS_H
#include "../base/common.h"
#include <netinet/in.h>
#include <sys/socket.h>
GX_BEGIN

typedef union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} GxEndpoint;
typedef struct {
    char text[80];
} GxEndpointText;

int gx_endpoint_numeric(GxEndpoint *e, const char *host, int port); // 0: the host is not a numeric address
int gx_endpoint_port(const GxEndpoint *e);
void gx_endpoint_set_port(GxEndpoint *e, int port);
int gx_endpoint_is_loopback(const GxEndpoint *e);
GxEndpointText gx_endpoint_text(const GxEndpoint *e); // 127.0.0.1:29500, [::1]:29500

// A socket, or -1 and errno.
int gx_socket_listen(const GxEndpoint *e); // port 0: any free one
int gx_socket_listen_everywhere(int port); // at all addresses of this machine
int gx_socket_accept(int listener);
int gx_socket_connect(const GxEndpoint *e, double deadline);
// Connects to the first of the host's addresses that accepts. each: seconds for one address; why[n]: the reason of a
// failure.
int gx_socket_connect_to_host(const char *host, int port, double each, double deadline, char *why, size_t n);
GxEndpoint gx_socket_endpoint(int fd, int of_peer);

// Return 1, or 0 and errno on a failure: ETIMEDOUT at the deadline, ECONNRESET if the peer has closed.
int gx_socket_wait(int fd, short events, double deadline);
int gx_socket_write(int fd, const void *data, size_t n, double deadline); // all n bytes
int gx_socket_read(int fd, void *data, size_t n, double deadline);
void gx_socket_close(int *fd); // -1: nothing; becomes -1
int gx_socket_pipe(int fd[2]); // neither end blocks; returns 0, and errno, on a failure

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SOCKETS_IMPLEMENTED)
#define GX_SOCKETS_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static socklen_t gx__sockets_endpoint_bytes(const GxEndpoint *e)
{
    return e->any.sa_family == AF_INET ? sizeof e->four : sizeof e->six;
}
int gx_endpoint_port(const GxEndpoint *e)
{
    return ntohs(e->any.sa_family == AF_INET ? e->four.sin_port : e->six.sin6_port);
}

void gx_endpoint_set_port(GxEndpoint *e, int port)
{
    if (e->any.sa_family == AF_INET) e->four.sin_port = htons((uint16_t)port);
    else e->six.sin6_port = htons((uint16_t)port);
}

// A listener for both families sees IPv4 addresses as ::ffff:a.b.c.d. Converts them back, since other machines may have
// no IPv6.
static void gx__sockets_endpoint_unmap(GxEndpoint *e)
{
    if (e->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&e->six.sin6_addr)) return;
    const GxEndpoint mapped = *e;
    memset(e, 0, sizeof *e);
    e->four.sin_family = AF_INET;
    e->four.sin_port = mapped.six.sin6_port;
    memcpy(&e->four.sin_addr, mapped.six.sin6_addr.s6_addr + 12, 4);
}

int gx_endpoint_is_loopback(const GxEndpoint *e)
{
    if (e->any.sa_family == AF_INET) return ntohl(e->four.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&e->six.sin6_addr);
}

GxEndpoint gx_socket_endpoint(int fd, int of_peer)
{
    GxEndpoint e;
    socklen_t n = sizeof e;
    memset(&e, 0, sizeof e);
    if (of_peer) getpeername(fd, &e.any, &n);
    else getsockname(fd, &e.any, &n);
    gx__sockets_endpoint_unmap(&e);
    return e;
}

GxEndpointText gx_endpoint_text(const GxEndpoint *e)
{
    GxEndpointText t;
    char host[64] = "?";
    getnameinfo(&e->any, gx__sockets_endpoint_bytes(e), host, sizeof host, NULL, 0, NI_NUMERICHOST);
    snprintf(t.text, sizeof t.text, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, gx_endpoint_port(e));
    return t;
}

void gx_socket_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

int gx_socket_pipe(int fd[2])
{
    if (pipe(fd)) {
        fd[0] = fd[1] = -1;
        return 0;
    }
    for (int i = 0; i < 2; i++) fcntl(fd[i], F_SETFD, FD_CLOEXEC), fcntl(fd[i], F_SETFL, O_NONBLOCK);
    return 1;
}

int gx_socket_wait(int fd, short events, double deadline)
{
    for (;;) {
        const double left = deadline - gx_seconds();
        struct pollfd p = {fd, events, 0};
        const int ready = left > 0 ? poll(&p, 1, (int)gx_min((int64_t)(left * 1000) + 1, 1000)) : 0;
        if (ready > 0) return 1;
        if (left > 0) continue;
        errno = ETIMEDOUT;
        return 0;
    }
}

int gx_socket_write(int fd, const void *data, size_t n, double deadline)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = send(fd, (const char *)data + done, n - done, MSG_NOSIGNAL);
        if (got > 0) done += (size_t)got;
        else if (errno != EINTR && errno != EAGAIN) return 0;
        else if (errno == EAGAIN && !gx_socket_wait(fd, POLLOUT, deadline)) return 0;
    }
    return 1;
}

int gx_socket_read(int fd, void *data, size_t n, double deadline)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = recv(fd, (char *)data + done, n - done, 0);
        if (got == 0) errno = ECONNRESET;
        if (got > 0) done += (size_t)got;
        else if (got == 0 || (errno != EINTR && errno != EAGAIN)) return 0;
        else if (errno == EAGAIN && !gx_socket_wait(fd, POLLIN, deadline)) return 0;
    }
    return 1;
}

int gx_socket_listen(const GxEndpoint *e)
{
    int fd = socket(e->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1, no = 0;
    if (fd < 0) return -1;
    // Otherwise the port of a run that has just ended would stay in use for a minute.
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (e->any.sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, &e->any, gx__sockets_endpoint_bytes(e)) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    const int reason = errno;
    gx_socket_close(&fd);
    errno = reason;
    return -1;
}

int gx_socket_listen_everywhere(int port)
{
    GxEndpoint e;
    memset(&e, 0, sizeof e); // the address of all zeros stands for all addresses
    e.any.sa_family = AF_INET6;
    gx_endpoint_set_port(&e, port);
    const int fd = gx_socket_listen(&e);
    if (fd >= 0 || errno != EAFNOSUPPORT) return fd;
    e.any.sa_family = AF_INET;
    gx_endpoint_set_port(&e, port);
    return gx_socket_listen(&e);
}

int gx_socket_connect(const GxEndpoint *e, double deadline)
{
    int fd = socket(e->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), reason = 0;
    socklen_t n = sizeof reason;
    if (fd < 0) return -1;
    if (connect(fd, &e->any, gx__sockets_endpoint_bytes(e)) != 0 && errno != EINPROGRESS) reason = errno;
    else if (!gx_socket_wait(fd, POLLOUT, deadline)) reason = ETIMEDOUT;
    else getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &n);
    if (!reason) {
        const GxEndpoint here = gx_socket_endpoint(fd, 0), there = gx_socket_endpoint(fd, 1);
        if (!memcmp(&here, &there, sizeof here))
            reason = ECONNREFUSED; // Linux may connect a socket to itself if its own port is the one without a listener
    }
    if (!reason) return fd;
    gx_socket_close(&fd);
    errno = reason;
    return -1;
}

int gx_endpoint_numeric(GxEndpoint *e, const char *host, int port)
{
    struct addrinfo hints, *found = NULL;
    memset(&hints, 0, sizeof hints);
    memset(e, 0, sizeof *e);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST;
    if (getaddrinfo(host, NULL, &hints, &found) != 0) return 0;
    memcpy(e, found->ai_addr, (size_t)gx_min(found->ai_addrlen, sizeof *e));
    freeaddrinfo(found);
    gx_endpoint_set_port(e, port);
    return 1;
}

int gx_socket_accept(int listener)
{
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

// `each` bounds the time for one address, so that one that never answers leaves time for the others.
int gx_socket_connect_to_host(const char *host, int port, double each, double deadline, char *why, size_t n)
{
    struct addrinfo hints, *list = NULL;
    int fd = -1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    const int code = getaddrinfo(host, NULL, &hints, &list);
    if (code) snprintf(why, n, "%s", gai_strerror(code));
    for (const struct addrinfo *a = code ? NULL : list; a && fd < 0; a = a->ai_next) {
        GxEndpoint e;
        const double until = gx_seconds() + each;
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        memset(&e, 0, sizeof e);
        memcpy(&e, a->ai_addr, (size_t)gx_min(a->ai_addrlen, sizeof e));
        gx_endpoint_set_port(&e, port);
        fd = gx_socket_connect(&e, until < deadline ? until : deadline);
        if (fd < 0) snprintf(why, n, "%s", strerror(errno));
    }
    if (!code) freeaddrinfo(list);
    return fd;
}
#endif
