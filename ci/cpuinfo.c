/* Preloaded into an emulated process: /proc/cpuinfo is the file CPUINFO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *place(const char *path) {
    return path && !strcmp(path, "/proc/cpuinfo") ? CPUINFO : path;
}

#define OPENING(name)                                              \
    int name(const char *path, int flags, ...) {                   \
        static int (*real)(const char *, int, ...);                \
        if (!real)                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);             \
        va_list arguments;                                         \
        va_start(arguments, flags);                                \
        int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, int) : 0; \
        va_end(arguments);                                         \
        return real(place(path), flags, mode);                     \
    }

#define STREAM(name)                                               \
    FILE *name(const char *path, const char *mode) {               \
        static FILE *(*real)(const char *, const char *);          \
        if (!real)                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);             \
        return real(place(path), mode);                            \
    }

OPENING(open)
OPENING(open64)
STREAM(fopen)
STREAM(fopen64)
