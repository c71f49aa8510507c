/* Counts what a process does to the files under one folder, and at one of these events kills it or fills its disk.
 *
 * Loaded before the C library (LD_PRELOAD), so that it sees what any language's code asks the system for. It does
 * nothing until torture_arm is called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT_EVENTS, KILL, COUNT_SPACE, FULL };

static char root[PATH_MAX];
static int mode, armed;
static long at;
static atomic_long events;

void torture_arm(const char *folder, int how, long which)
{
    snprintf(root, sizeof root, "%s/", folder);
    mode = how;
    at = which;
    atomic_store(&events, 0);
    armed = 1;
}

long torture_events(void)
{
    return atomic_load(&events);
}

static int inside(const char *path)
{
    return strncmp(path, root, strlen(root)) == 0 || strncmp(path, root, strlen(root) - 1) == 0;
}

static int of_descriptor(int descriptor)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return inside(path);
}

static int of_path(int folder, const char *path)
{
    char whole[PATH_MAX], here[PATH_MAX / 2];
    if (path[0] == '/')
        return inside(path);
    if (folder != AT_FDCWD)
        return of_descriptor(folder);
    if (!getcwd(here, sizeof here))
        return 0;
    snprintf(whole, sizeof whole, "%s/%s", here, path);
    return inside(whole);
}

/* Whether the event about to happen must fail, for it takes space and there is none. */
static int event(int takes_space)
{
    if (!takes_space && (mode == COUNT_SPACE || mode == FULL))
        return 0;
    long number = atomic_fetch_add(&events, 1) + 1;
    if (mode == KILL && number == at) {
        kill(getpid(), SIGKILL);
        pause();
    }
    if (mode == FULL && number >= at) { /* a full disk stays full */
        errno = ENOSPC;
        return 1;
    }
    return 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WATCH(where, takes_space) if (armed && (where) && event(takes_space)) return -1

#define OPENS(name)                                                                                                    \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t rights = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                      \
        va_end(more);                                                                                                  \
        if (flags & O_CREAT)                                                                                           \
            WATCH(of_path(AT_FDCWD, path), 1);                                                                         \
        return ((int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, #name))(path, flags, rights);                     \
    }
#define OPENS_AT(name)                                                                                                 \
    int name(int folder, const char *path, int flags, ...)                                                             \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t rights = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                      \
        va_end(more);                                                                                                  \
        if (flags & O_CREAT)                                                                                           \
            WATCH(of_path(folder, path), 1);                                                                           \
        return ((int (*)(int, const char *, int, mode_t))dlsym(RTLD_NEXT, #name))(folder, path, flags, rights);        \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

ssize_t write(int descriptor, const void *bytes, size_t count)
{
    WATCH(of_descriptor(descriptor), 1);
    return REAL(write)(descriptor, bytes, count);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    WATCH(of_descriptor(descriptor), 1);
    return REAL(writev)(descriptor, parts, count);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t place)
{
    WATCH(of_descriptor(descriptor), 1);
    return REAL(pwrite)(descriptor, bytes, count, place);
}

int fsync(int descriptor)
{
    WATCH(of_descriptor(descriptor), 1);
    return REAL(fsync)(descriptor);
}

int ftruncate(int descriptor, off_t size)
{
    WATCH(of_descriptor(descriptor), 1);
    return REAL(ftruncate)(descriptor, size);
}

int fchmod(int descriptor, mode_t rights)
{
    WATCH(of_descriptor(descriptor), 0);
    return REAL(fchmod)(descriptor, rights);
}

int mkdir(const char *path, mode_t rights)
{
    WATCH(of_path(AT_FDCWD, path), 1);
    return REAL(mkdir)(path, rights);
}

int rename(const char *from, const char *to)
{
    WATCH(of_path(AT_FDCWD, to), 0);
    return REAL(rename)(from, to);
}

int unlink(const char *path)
{
    WATCH(of_path(AT_FDCWD, path), 0);
    return REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    WATCH(of_path(folder, path), 0);
    return REAL(unlinkat)(folder, path, flags);
}

int rmdir(const char *path)
{
    WATCH(of_path(AT_FDCWD, path), 0);
    return REAL(rmdir)(path);
}
