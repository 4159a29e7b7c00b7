/* A file system that stalls, for LD_PRELOAD: while the file STALLED exists, whatever writes to a
   file in the folder STALLING waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void wait_for(const char *path) {
    const char *folder = getenv("STALLING"), *stalled = getenv("STALLED");
    struct stat state;
    if (folder == NULL || stalled == NULL || strncmp(path, folder, strlen(folder)) != 0)
        return;
    while (stat(stalled, &state) == 0)
        usleep(10000);
}

ssize_t write(int file, const void *text, size_t size) {
    static ssize_t (*next)(int, const void *, size_t);
    char link[64], path[4096];
    if (next == NULL)
        next = dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        wait_for(path);
    }
    return next(file, text, size);
}

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if (next == NULL)
        next = dlsym(RTLD_NEXT, "open64");
    if (flags & (O_WRONLY | O_RDWR | O_CREAT))
        wait_for(path);
    return next(path, flags, mode);
}

int rename(const char *old, const char *new) {
    static int (*next)(const char *, const char *);
    if (next == NULL)
        next = dlsym(RTLD_NEXT, "rename");
    wait_for(new);
    return next(old, new);
}
