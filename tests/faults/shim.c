/* Between a program and its files: records what is written, synced and renamed below one folder, or makes it fail.
 *
 * Loaded with LD_PRELOAD; does nothing until shim_record or shim_fail is called. One lock around each call and its
 * record keeps the order true. Built by tests/faults/shim.py.
 *
 * Record: kind (1 byte), file (8, inode), offset (8), length (4), bytes; all little-endian.
 *   C create, bytes are the path   W write   T truncate to offset   S sync (of a file, or of a folder: file 0, bytes are the path)
 *   N create without a name   L give it one, bytes are the path
 *   R rename, bytes are old NUL new   U unlink, bytes are the path
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[4096];
static size_t root_length;
static int record_to = -1;

static int failing;        /* armed */
static long count_down;    /* calls left until the first failure; counts up, negative, when only counting */
static int fail_with;      /* errno; or, negative, the signal that ends the process before the call */
static int fail_for_good;  /* every call after it fails too, until disarmed */
static long calls;

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)

static int below_path(const char *path) { return root_length && path && !strncmp(path, root, root_length); }

static int below(int fd, int *folder) {
    char link[64], path[4096];
    struct stat info;
    if (!root_length) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (!below_path(path) || fstat(fd, &info)) return 0;
    if (strstr(path, "-shm")) return 0; /* shared memory in a file's clothes: never read after a crash */
    *folder = S_ISDIR(info.st_mode);
    return 1;
}

static uint64_t inode(int fd) { struct stat info; return fstat(fd, &info) ? 0 : (uint64_t)info.st_ino; }

static void put(char kind, uint64_t file, uint64_t offset, const void *bytes, uint32_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    if (record_to < 0) return;
    char head[21];
    head[0] = kind;
    memcpy(head + 1, &file, 8); memcpy(head + 9, &offset, 8); memcpy(head + 17, &length, 4);
    if (real(record_to, head, 21) != 21 || (length && real(record_to, bytes, length) != (ssize_t)length)) abort();
}

/* Whether this call is to fail; errno is set then. */
static int fails(void) {
    calls++;
    if (!failing) return 0;
    if (--count_down > 0) return 0;
    if (count_down < 0 && !fail_for_good) return 0;
    if (fail_with < 0) raise(-fail_with);
    errno = fail_with;
    return 1;
}

void shim_root(const char *path) { snprintf(root, sizeof root, "%s", path); root_length = strlen(root); }
void shim_record(int fd) { record_to = fd; }
void shim_fail(long at, int number, int for_good) { count_down = at; fail_with = number; fail_for_good = for_good; failing = at > 0; }
long shim_calls(void) { return calls; }

static int opened(int (*real)(int, const char *, int, mode_t), int at, const char *path, int flags, mode_t mode) {
    int new = 0;
    if (below_path(path) && (flags & O_TMPFILE) == O_TMPFILE) {
        pthread_mutex_lock(&lock);
        int nameless = fails() ? -1 : real(at, path, flags, mode);
        int why = errno;
        if (nameless >= 0) put('N', inode(nameless), 0, NULL, 0);
        pthread_mutex_unlock(&lock);
        errno = why;
        return nameless;
    }
    if (!below_path(path) || !(flags & (O_CREAT | O_TRUNC))) return real(at, path, flags, mode);
    pthread_mutex_lock(&lock);
    new = access(path, F_OK) != 0;
    int fd = new && fails() ? -1 : real(at, path, flags, mode);
    int failed = errno;
    if (fd >= 0 && new && !strstr(path, "-shm")) put('C', inode(fd), 0, path, strlen(path));
    else if (fd >= 0 && (flags & O_TRUNC)) put('T', inode(fd), 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = failed;
    return fd;
}

static int real_openat(int at, const char *path, int flags, mode_t mode) {
    static int (*real)(int, const char *, int, ...);
    if (!real) real = dlsym(RTLD_NEXT, "openat");
    return real(at, path, flags, mode);
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *path, int flags, ...) { MODE return opened(real_openat, AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return opened(real_openat, AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return opened(real_openat, at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return opened(real_openat, at, path, flags, mode); }

/* A full disk writes a part and then says so: half of what was asked goes through before an ENOSPC. */
static ssize_t written(int fd, const void *bytes, size_t length, off_t offset, int positioned) {
    static ssize_t (*real_write)(int, const void *, size_t);
    static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
    int folder = 0;
    if (!real_write) { real_write = dlsym(RTLD_NEXT, "write"); real_pwrite = dlsym(RTLD_NEXT, "pwrite64"); }
    if (fd == record_to || !below(fd, &folder))
        return positioned ? real_pwrite(fd, bytes, length, offset) : real_write(fd, bytes, length);
    pthread_mutex_lock(&lock);
    ssize_t done = -1;
    int failed = 0;
    if (!positioned) {
        struct stat info;
        offset = fcntl(fd, F_GETFL) & O_APPEND ? (fstat(fd, &info), info.st_size) : lseek(fd, 0, SEEK_CUR);
    }
    if (fails()) {
        failed = errno;
        if (failed == ENOSPC && length > 1) {
            done = positioned ? real_pwrite(fd, bytes, length / 2, offset) : real_write(fd, bytes, length / 2);
            if (count_down >= 0) count_down = 1; /* the rest is refused as well */
        }
    } else {
        done = positioned ? real_pwrite(fd, bytes, length, offset) : real_write(fd, bytes, length);
        failed = errno;
    }
    if (done > 0) put('W', inode(fd), offset, bytes, done);
    pthread_mutex_unlock(&lock);
    errno = failed;
    return done;
}

ssize_t write(int fd, const void *bytes, size_t length) { return written(fd, bytes, length, 0, 0); }
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return written(fd, bytes, length, offset, 1); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) { return written(fd, bytes, length, offset, 1); }

static int synced(int fd, int (*real)(int)) {
    int folder = 0;
    if (!below(fd, &folder)) return real(fd);
    pthread_mutex_lock(&lock);
    int done = fails() ? -1 : real(fd);
    int failed = errno;
    if (!done && !folder) put('S', inode(fd), 0, NULL, 0);
    if (!done && folder) {
        char link[64], path[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t known = readlink(link, path, sizeof path);
        put('S', 0, 0, path, known < 0 ? 0 : known);
    }
    pthread_mutex_unlock(&lock);
    errno = failed;
    return done;
}

int fsync(int fd) { REAL(fsync); return synced(fd, real); }
int fdatasync(int fd) { REAL(fdatasync); return synced(fd, real); }

static int truncated(int fd, off_t length, int (*real)(int, off_t)) {
    int folder = 0;
    if (!below(fd, &folder)) return real(fd, length);
    pthread_mutex_lock(&lock);
    int done = fails() ? -1 : real(fd, length);
    int failed = errno;
    if (!done) put('T', inode(fd), length, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = failed;
    return done;
}

int ftruncate(int fd, off_t length) { REAL(ftruncate); return truncated(fd, length, real); }
int ftruncate64(int fd, off_t length) { REAL(ftruncate64); return truncated(fd, length, real); }

static int renamed(int one, const char *old, int two, const char *new) {
    static int (*real)(int, const char *, int, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "renameat");
    if (!below_path(new)) return real(one, old, two, new);
    char both[8192];
    int length = snprintf(both, sizeof both, "%s%c%s", old, 0, new);
    pthread_mutex_lock(&lock);
    int done = fails() ? -1 : real(one, old, two, new);
    int failed = errno;
    if (!done) put('R', 0, 0, both, length);
    pthread_mutex_unlock(&lock);
    errno = failed;
    return done;
}

int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new); }
int renameat(int one, const char *old, int two, const char *new) { return renamed(one, old, two, new); }

/* A file that had no name until now. */
int linkat(int one, const char *old, int two, const char *new, int flags) {
    REAL(linkat);
    if (!below_path(new)) return real(one, old, two, new, flags);
    pthread_mutex_lock(&lock);
    int done = fails() ? -1 : real(one, old, two, new, flags);
    int failed = errno;
    struct stat info;
    if (!done && !stat(new, &info)) put('L', info.st_ino, 0, new, strlen(new));
    pthread_mutex_unlock(&lock);
    errno = failed;
    return done;
}

static int unlinked(int at, const char *path, int flags) {
    static int (*real)(int, const char *, int);
    if (!real) real = dlsym(RTLD_NEXT, "unlinkat");
    if (!below_path(path) || flags) return real(at, path, flags);
    pthread_mutex_lock(&lock);
    int done = real(at, path, flags);
    int failed = errno;
    if (!done && !strstr(path, "-shm")) put('U', 0, 0, path, strlen(path));
    pthread_mutex_unlock(&lock);
    errno = failed;
    return done;
}

int unlink(const char *path) { return unlinked(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return unlinked(at, path, flags); }
