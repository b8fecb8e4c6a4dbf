// The clock of the day, moved by as many seconds as the file that PARITY_TEST_CLOCK names holds, for every process that
// preloads this. Deadlines at that clock are moved back before the kernel gets them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *moved;
static long zero;

static long shift(void) {
    if (!moved) {
        const char *name = getenv("PARITY_TEST_CLOCK");
        int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
        void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0) close(file);
        moved = page == MAP_FAILED ? &zero : page;
    }
    return *moved;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int clock_gettime(clockid_t id, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (!real) real = REAL(clock_gettime);
    int code = real(id, now);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) now->tv_sec += shift();
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec t;
    int code = clock_gettime(CLOCK_REALTIME, &t);
    now->tv_sec = t.tv_sec, now->tv_usec = t.tv_nsec / 1000;
    return code;
}

time_t time(time_t *to) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (to) *to = t.tv_sec;
    return t.tv_sec;
}

// A deadline at the clock of the day is told from one at a monotonic clock by its size.
static struct timespec back(const struct timespec *at) {
    struct timespec moved = *at;
    if (moved.tv_sec > 1000000000) moved.tv_sec -= shift();
    return moved;
}

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict at) {
    static __typeof__(&pthread_cond_timedwait) real;
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    struct timespec t = back(at);
    return real(c, m, &t);
}

int sem_timedwait(sem_t *restrict s, const struct timespec *restrict at) {
    struct timespec t = back(at);
    return REAL(sem_timedwait)(s, &t);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict m, const struct timespec *restrict at) {
    struct timespec t = back(at);
    return REAL(pthread_mutex_timedlock)(m, &t);
}

long syscall(long number, ...) {
    static __typeof__(&syscall) real;
    if (!real) real = REAL(syscall);
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    struct timespec t;
    if (number == SYS_futex && a[1] & FUTEX_CLOCK_REALTIME && a[3]) {
        t = back((const struct timespec *)a[3]);
        a[3] = (long)&t;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
