/* One write() to a file below a folder fails, for a process that preloads this library.
   cc -shared -fPIC -o fail_write.so fail_write.c -ldl */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static char folder[4096];
static long wanted, count, inodes[1000];
static int error_number;

void fail_write(const char *below, long nth, int error) { /* nth 0: none of them */
    snprintf(folder, sizeof folder, "%s/", below);
    wanted = nth, count = 0, error_number = error;
}

long writes(void) { return count; }
long inode_of(long nth) { return inodes[nth - 1]; }

ssize_t write(int file, const void *bytes, size_t size) {
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char link[32], path[4096] = "";
    struct stat about;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (folder[0] && readlink(link, path, sizeof path - 1) > 0 && !strncmp(path, folder, strlen(folder))) {
        pthread_mutex_lock(&guard);
        inodes[count++ % 1000] = fstat(file, &about) ? 0 : (long)about.st_ino;
        int fails = count == wanted;
        pthread_mutex_unlock(&guard);
        if (fails) return errno = error_number, -1;
    }
    return real(file, bytes, size);
}
