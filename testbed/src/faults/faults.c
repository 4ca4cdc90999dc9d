/* What a disk and a clock can do to a process, done to the one that this is loaded into.
 *
 * FAULTS names a file of 40 bytes that the test writes and this maps:
 *    0  i64  milliseconds that the machine's clock is ahead
 *    8  u32  which calls fail: 1 writes, 2 syncs, 4 reads, 8 changes of names (a file that is made if it
 *            is missing, renamed, removed), 16 answers (what comes from a server is lost)
 *   12  i32  errno that they fail with; 0: the process is killed instead
 *   16  i64  of such calls, so many go well before the first one fails
 *   24  i64  and so many fail then; after these all go well again
 *   32  i64  calls that have failed, counted here
 * FAULTS_DIR is the folder on whose files they fail, FAULTS_PORTS the ports of the servers whose
 * answers are lost, as "16000,16020".
 *
 * Everything goes to the kernel directly: nothing here allocates or needs the functions that it
 * stands for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { WRITES = 1, SYNCS = 2, READS = 4, NAMES = 8, ANSWERS = 16 };

struct control {
  volatile int64_t ahead_ms;
  volatile uint32_t calls;
  volatile int32_t error;
  volatile int64_t well;
  volatile int64_t fail;
  volatile int64_t failed;
};

static struct control nothing;
static struct control *control = &nothing;
static const char *folder = "";
static const char *ports = "";

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAULTS");
  if (path == NULL) return;
  int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) abort();
  void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) abort();
  syscall(SYS_close, fd);
  control = mapped;
  if (getenv("FAULTS_DIR") != NULL) folder = getenv("FAULTS_DIR");
  if (getenv("FAULTS_PORTS") != NULL) ports = getenv("FAULTS_PORTS");
}

/* Whether it is the turn of one of the calls that fail. */
static int is_due(void) {
  if (__atomic_fetch_sub(&control->well, 1, __ATOMIC_SEQ_CST) > 0) return 0;
  if (__atomic_fetch_sub(&control->fail, 1, __ATOMIC_SEQ_CST) <= 0) return 0;
  __atomic_fetch_add(&control->failed, 1, __ATOMIC_SEQ_CST);
  if (control->error == 0) syscall(SYS_kill, getpid(), SIGKILL);
  errno = control->error;
  return 1;
}

/* Whether a call on a file of this path fails now. */
static int fails_at(uint32_t call, const char *path) {
  if ((control->calls & call) == 0 || *folder == 0) return 0;
  if (strncmp(path, folder, strlen(folder)) != 0) return 0;
  return is_due();
}

/* Whether a call on a file fails now. */
static int fails(uint32_t call, int fd) {
  if ((control->calls & call) == 0 || *folder == 0) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  /* What the engine tells of itself is no data, and nobody looks whether it could be written. */
  const char *name = strrchr(path, '/');
  if (name != NULL && strcmp(name, "/LOG") == 0) return 0;
  return fails_at(call, path);
}

int open64(const char *path, int flags, ...) {
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if ((flags & O_CREAT) && fails_at(NAMES, path)) return -1;
  return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...) __attribute__((alias("open64")));

int rename(const char *from, const char *to) {
  if (fails_at(NAMES, from)) return -1;
  return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path) {
  if (fails_at(NAMES, path)) return -1;
  return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

ssize_t write(int fd, const void *bytes, size_t count) {
  if (fails(WRITES, fd)) return -1;
  return syscall(SYS_write, fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  if (fails(WRITES, fd)) return -1;
  return syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
  return pwrite64(fd, bytes, count, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  if (fails(WRITES, fd)) return -1;
  return syscall(SYS_writev, fd, parts, count);
}

int fsync(int fd) {
  if (fails(SYNCS, fd)) return -1;
  return syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
  if (fails(SYNCS, fd)) return -1;
  return syscall(SYS_fdatasync, fd);
}

int sync_file_range(int fd, off64_t from, off64_t count, unsigned flags) {
  if (fails(SYNCS, fd)) return -1;
  return syscall(SYS_sync_file_range, fd, from, count, flags);
}

ssize_t read(int fd, void *bytes, size_t count) {
  if (fails(READS, fd)) return -1;
  return syscall(SYS_read, fd, bytes, count);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
  if (fails(READS, fd)) return -1;
  return syscall(SYS_pread64, fd, bytes, count, at);
}

ssize_t pread(int fd, void *bytes, size_t count, off_t at) {
  return pread64(fd, bytes, count, at);
}

/* Whether a socket leads to one of the ports. */
static int is_of_ports(int fd) {
  struct sockaddr_storage peer;
  socklen_t length = sizeof peer;
  if (syscall(SYS_getpeername, fd, &peer, &length) != 0) return 0;
  unsigned port;
  if (peer.ss_family == AF_INET) port = ntohs(((struct sockaddr_in *)&peer)->sin_port);
  else if (peer.ss_family == AF_INET6) port = ntohs(((struct sockaddr_in6 *)&peer)->sin6_port);
  else return 0;
  for (const char *at = ports; at != NULL && *at != 0; at = strchr(at, ',')) {
    if (*at == ',') at++;
    if (strtoul(at, NULL, 10) == port) return 1;
  }
  return 0;
}

/* What the server has sent is gone, and the connection is as good as that. */
ssize_t recv(int fd, void *bytes, size_t count, int flags) {
  ssize_t received = syscall(SYS_recvfrom, fd, bytes, count, flags, NULL, NULL);
  if (received <= 0 || (control->calls & ANSWERS) == 0) return received;
  return is_of_ports(fd) && is_due() ? -1 : received;
}

/* The clock that can be set. Those that only go on are left alone. */
static int is_settable(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

static void add_ms(struct timespec *time, int64_t ms) {
  int64_t nanos = time->tv_nsec + ms % 1000 * 1000000;
  time->tv_sec += ms / 1000 + nanos / 1000000000;
  time->tv_nsec = nanos % 1000000000;
  if (time->tv_nsec < 0) {
    time->tv_sec -= 1;
    time->tv_nsec += 1000000000;
  }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && is_settable(clock)) add_ms(time, control->ahead_ms);
  return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

int timespec_get(struct timespec *time, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, time) == 0 ? base : 0;
}

time_t time(time_t *kept) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (kept != NULL) *kept = now.tv_sec;
  return now.tv_sec;
}

/* Until a moment of the clock that can be set, wherever it is set meanwhile, as the kernel waits.
 * No part of the process has conditions on another clock that it waits for by this function. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  for (;;) {
    struct timespec now, look;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t left_ms = (until->tv_sec - now.tv_sec) * 1000 + (until->tv_nsec - now.tv_nsec) / 1000000;
    clock_gettime(CLOCK_MONOTONIC, &look);
    if (left_ms < 20) {
      int64_t nanos = (until->tv_sec - now.tv_sec) * 1000000000 + (until->tv_nsec - now.tv_nsec);
      if (nanos > 0) {
        look.tv_nsec += nanos;
        look.tv_sec += look.tv_nsec / 1000000000;
        look.tv_nsec %= 1000000000;
      }
      return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &look);
    }
    add_ms(&look, left_ms < 50 ? left_ms - 10 : 50);
    int result = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &look);
    if (result != ETIMEDOUT) return result;
  }
}

/* The same by the names of C11, whose types are those of POSIX in glibc. */
int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict until) {
  switch (pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until)) {
    case 0: return thrd_success;
    case ETIMEDOUT: return thrd_timedout;
    default: return thrd_error;
  }
}
