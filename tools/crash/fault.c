/* Faults below one folder, for a process that preloads this library (see faults.py).

   Every call that changes something below the folder, or syncs it, has a text: its name and the path below the folder.
   The calls whose text matches a pattern are counted, and at the n-th of them something happens: it fails, writes half
   of its bytes, or the process is killed before or after it. Calls from within SQLite and Lance pass through here, too.
   The clock of the process can be set forward and back as well. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum action { COUNT, FAIL, SHORT, TORN, KILL_BEFORE, KILL_AFTER };
enum kind { NAME, WRITE, SYNC, REMOVE };
enum verdict { GO_ON, REFUSE, HALF, HALF_AND_DIE, DIE_AFTER };

#define TEXT (PATH_MAX + 32)

static atomic_int armed;
static atomic_long clock_offset;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static char folder[PATH_MAX], pattern[TEXT], struck[TEXT + 1], shortened[TEXT + 1];
static size_t length;
static int action, error_number, lasting, trace = -1;
static long wanted, seen;

/* What the driver calls */

void fault_arm(const char *below, const char *texts, int what, int number, int from_then_on, long occurrence) {
    pthread_mutex_lock(&guard);
    snprintf(folder, sizeof folder, "%s", below);
    snprintf(pattern, sizeof pattern, "%s", texts);
    length = strlen(folder);
    action = what, error_number = number, lasting = from_then_on, wanted = occurrence, seen = 0;
    struck[0] = shortened[0] = 0;
    pthread_mutex_unlock(&guard);
    atomic_store(&armed, 1);
}

void fault_disarm(void) { atomic_store(&armed, 0); }
void fault_trace(int descriptor) { trace = descriptor; }
long fault_count(void) { return seen; }
const char *fault_struck(void) { return struck; }
void fault_clock(long seconds) { atomic_store(&clock_offset, seconds); }

/* Which calls are meant */

static int below(const char *path) {
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

static int path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    return size >= 0;
}

static int path_at(int directory, const char *name, char *path) {
    char start[PATH_MAX];
    if (name[0] == '/') return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
    if (directory == AT_FDCWD ? !getcwd(start, sizeof start) : !path_of(directory, start)) return 0;
    return snprintf(path, PATH_MAX, "%s/%s", start, name) < PATH_MAX;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static enum verdict refuse(enum kind kind) {
    if (error_number == ENOSPC && kind == REMOVE) return GO_ON; /* that needs no room */
    errno = error_number == ENOSPC && kind == SYNC ? EIO : error_number;
    return REFUSE;
}

static enum verdict strike(enum kind kind, const char *text) {
    snprintf(struck, sizeof struck, "%s", text);
    if (trace >= 0) syscall(SYS_write, trace, "STRUCK\n", 7UL);
    switch (action) {
        case FAIL: return refuse(kind);
        case SHORT:
            if (kind != WRITE) return refuse(kind);
            snprintf(shortened, sizeof shortened, "%s", text);
            return HALF;
        case TORN: return kind == WRITE ? HALF_AND_DIE : DIE_AFTER;
        case KILL_BEFORE: die(); return GO_ON;
        default: return DIE_AFTER;
    }
}

static enum verdict judged(const char *call, enum kind kind, const char *path) {
    char text[TEXT + 1];
    int size = snprintf(text, sizeof text, "%s %s", call, path[length] ? path + length + 1 : ".");
    if (trace >= 0) {
        text[size] = '\n';
        syscall(SYS_write, trace, text, (size_t)size + 1);
        text[size] = 0;
    }
    if (shortened[0] && !strcmp(shortened, text)) { /* the rest of a short write */
        shortened[0] = 0;
        return refuse(kind);
    }
    if (struck[0]) return lasting && !(error_number == ENOSPC && kind == SYNC) ? refuse(kind) : GO_ON;
    if (fnmatch(pattern, text, 0)) return GO_ON;
    seen++;
    return action != COUNT && seen == wanted ? strike(kind, text) : GO_ON;
}

static enum verdict judge(const char *call, enum kind kind, const char *path) {
    if (!below(path)) return GO_ON;
    pthread_mutex_lock(&guard);
    enum verdict verdict = judged(call, kind, path);
    pthread_mutex_unlock(&guard);
    return verdict;
}

static enum verdict on_descriptor(const char *call, enum kind kind, int descriptor) {
    char path[PATH_MAX];
    return atomic_load(&armed) && path_of(descriptor, path) ? judge(call, kind, path) : GO_ON;
}

static enum verdict on_name(const char *call, enum kind kind, int directory, const char *name) {
    char path[PATH_MAX];
    return atomic_load(&armed) && path_at(directory, name, path) ? judge(call, kind, path) : GO_ON;
}

/* The calls. REAL looks up the one that would have been called without this library. */

#define REAL(result, name, ...)                                                                                        \
    static result (*real)(__VA_ARGS__);                                                                                \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define JUDGED(judgement, call)                                                                                        \
    do {                                                                                                               \
        enum verdict decided = judgement;                                                                              \
        if (decided == REFUSE) return -1;                                                                              \
        __auto_type result = call;                                                                                     \
        if (decided == DIE_AFTER) die();                                                                               \
        return result;                                                                                                 \
    } while (0)

#define JUDGED_WRITE(name, descriptor, whole, half)                                                                    \
    do {                                                                                                               \
        enum verdict decided = on_descriptor(name, WRITE, descriptor);                                                 \
        if (decided == REFUSE) return -1;                                                                              \
        ssize_t result = decided == HALF || decided == HALF_AND_DIE ? half : whole;                                    \
        if (decided == HALF_AND_DIE || decided == DIE_AFTER) die();                                                    \
        return result;                                                                                                 \
    } while (0)

static enum verdict on_open(int directory, const char *name, int flags) {
    int changes = flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC);
    return changes ? on_name("open", NAME, directory, name) : GO_ON;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        REAL(int, #name, const char *, int, ...);                                                                      \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = va_arg(rest, mode_t);                                                                            \
        va_end(rest);                                                                                                  \
        JUDGED(on_open(AT_FDCWD, path, flags), real(path, flags, mode));                                               \
    }
#define OPENAT(name)                                                                                                   \
    int name(int directory, const char *path, int flags, ...) {                                                        \
        REAL(int, #name, int, const char *, int, ...);                                                                 \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = va_arg(rest, mode_t);                                                                            \
        va_end(rest);                                                                                                  \
        JUDGED(on_open(directory, path, flags), real(directory, path, flags, mode));                                   \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int descriptor, const void *bytes, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    JUDGED_WRITE("write", descriptor, real(descriptor, bytes, size), real(descriptor, bytes, size / 2));
}

#define PWRITE(name)                                                                                                   \
    ssize_t name(int descriptor, const void *bytes, size_t size, off_t offset) {                                       \
        REAL(ssize_t, #name, int, const void *, size_t, off_t);                                                        \
        JUDGED_WRITE("write", descriptor, real(descriptor, bytes, size, offset),                                       \
                     real(descriptor, bytes, size / 2, offset));                                                       \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

static size_t half_of(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int part = 0; part < count; part++) size += parts[part].iov_len;
    return size / 2;
}

static ssize_t write_half(int descriptor, const struct iovec *parts, int count) {
    ssize_t written = 0;
    size_t left = half_of(parts, count);
    for (int part = 0; part < count && left; part++) {
        size_t size = parts[part].iov_len < left ? parts[part].iov_len : left;
        written += syscall(SYS_write, descriptor, parts[part].iov_base, size);
        left -= size;
    }
    return written;
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    JUDGED_WRITE("write", descriptor, real(descriptor, parts, count), write_half(descriptor, parts, count));
}

#define SENDFILE(name)                                                                                                 \
    ssize_t name(int to, int from, off_t *offset, size_t size) {                                                       \
        REAL(ssize_t, #name, int, int, off_t *, size_t);                                                               \
        JUDGED_WRITE("write", to, real(to, from, offset, size), real(to, from, offset, size / 2));                     \
    }
SENDFILE(sendfile)
SENDFILE(sendfile64)

ssize_t copy_file_range(int from, off64_t *read_at, int to, off64_t *write_at, size_t size, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    JUDGED_WRITE("write", to, real(from, read_at, to, write_at, size, flags),
                 real(from, read_at, to, write_at, size / 2, flags));
}

#define SYNCING(name)                                                                                                  \
    int name(int descriptor) {                                                                                         \
        REAL(int, #name, int);                                                                                         \
        JUDGED(on_descriptor("sync", SYNC, descriptor), real(descriptor));                                             \
    }
SYNCING(fsync)
SYNCING(fdatasync)

#define TRUNCATE(name)                                                                                                 \
    int name(int descriptor, off_t size) {                                                                             \
        REAL(int, #name, int, off_t);                                                                                  \
        JUDGED(on_descriptor("truncate", REMOVE, descriptor), real(descriptor, size));                                 \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    JUDGED(on_name("rename", NAME, AT_FDCWD, to), real(from, to));
}

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    JUDGED(on_name("rename", NAME, to_directory, to), real(from_directory, from, to_directory, to));
}

int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    JUDGED(on_name("link", NAME, AT_FDCWD, to), real(from, to));
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    JUDGED(on_name("link", NAME, to_directory, to), real(from_directory, from, to_directory, to, flags));
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    JUDGED(on_name("unlink", REMOVE, AT_FDCWD, path), real(path));
}

int unlinkat(int directory, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    const char *call = flags & AT_REMOVEDIR ? "rmdir" : "unlink";
    JUDGED(on_name(call, REMOVE, directory, path), real(directory, path, flags));
}

int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    JUDGED(on_name("rmdir", REMOVE, AT_FDCWD, path), real(path));
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    JUDGED(on_name("mkdir", NAME, AT_FDCWD, path), real(path, mode));
}

int mkdirat(int directory, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    JUDGED(on_name("mkdir", NAME, directory, path), real(directory, path, mode));
}

/* The clock that people set. Waiting goes by another one, which nobody can set. */

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += atomic_load(&clock_offset);
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(int, "gettimeofday", struct timeval *, void *);
    int result = real(now, zone);
    if (!result) now->tv_sec += atomic_load(&clock_offset);
    return result;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept) *kept = now.tv_sec;
    return now.tv_sec;
}
