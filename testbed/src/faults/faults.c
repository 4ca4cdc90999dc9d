/* Faults of a disk and of the system clock, for the process that preloads this library.
 *
 * FAULTS names a control file of 40 bytes, which the test writes and this library maps:
 *    0  i64  milliseconds that the system clock is ahead
 *    8  u32  calls that fail: 1 writes, 2 syncs, 4 reads, 8 changes of names (creating, renaming and
 *            removing files), 16 responses (data received from a server is lost); 32 does not fail writes
 *            to table files but delays each
 *   12  i32  errno of the failures; 0 kills the process instead
 *   16  i64  this many calls succeed before the first failure; or the delay in ms
 *   24  i64  then this many fail; all later ones succeed
 *   32  i64  failures so far, counted here
 * FAULTS_DIR is the directory on whose files the calls fail. FAULTS_PORTS has the ports of the servers
 * whose responses are lost, for example "16000,16020".
 *
 * All functions call the kernel directly, because they must not allocate or call what they replace. */
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

enum { WRITES = 1, SYNCS = 2, READS = 4, NAMES = 8, RESPONSES = 16, SLOW_TABLES = 32 };

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
static const char *directory = "";
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
  if (getenv("FAULTS_DIR") != NULL) directory = getenv("FAULTS_DIR");
  if (getenv("FAULTS_PORTS") != NULL) ports = getenv("FAULTS_PORTS");
}

/* Returns whether the next call must fail. */
static int is_due(void) {
  if (__atomic_fetch_sub(&control->well, 1, __ATOMIC_SEQ_CST) > 0) return 0;
  if (__atomic_fetch_sub(&control->fail, 1, __ATOMIC_SEQ_CST) <= 0) return 0;
  __atomic_fetch_add(&control->failed, 1, __ATOMIC_SEQ_CST);
  if (control->error == 0) syscall(SYS_kill, getpid(), SIGKILL);
  errno = control->error;
  return 1;
}

/* Returns whether a call on a file with this path fails. */
static int fails_at(uint32_t call, const char *path) {
  if ((control->calls & call) == 0 || *directory == 0) return 0;
  if (strncmp(path, directory, strlen(directory)) != 0) return 0;
  return is_due();
}

/* Finds the path of an open file. Returns whether it has one. */
static int find_path(int fd, char *path, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, size - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return 1;
}

/* Delays a write if it is to a table file. */
static void delay(int fd) {
  char path[4096];
  if ((control->calls & SLOW_TABLES) == 0 || *directory == 0) return;
  if (!find_path(fd, path, sizeof path) || strncmp(path, directory, strlen(directory)) != 0) return;
  const char *extension = strrchr(path, '.');
  if (extension == NULL || strcmp(extension, ".sst") != 0) return;
  int64_t ms = control->well;
  struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  syscall(SYS_nanosleep, &pause, NULL);
}

/* Returns whether a call on an open file fails. */
static int fails(uint32_t call, int fd) {
  if (call == WRITES) delay(fd);
  if ((control->calls & call) == 0 || *directory == 0) return 0;
  char path[4096];
  if (!find_path(fd, path, sizeof path)) return 0;
  /* The engine's info log is not data, and write errors on it are ignored. */
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

/* Returns whether a socket is connected to one of the ports. */
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

/* The received data is dropped, and the connection fails. */
ssize_t recv(int fd, void *bytes, size_t count, int flags) {
  ssize_t received = syscall(SYS_recvfrom, fd, bytes, count, flags, NULL, NULL);
  if (received <= 0 || (control->calls & RESPONSES) == 0) return received;
  return is_of_ports(fd) && is_due() ? -1 : received;
}

/* Only clocks that can be set are changed, not the monotonic ones. */
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

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != NULL) *result = now.tv_sec;
  return now.tv_sec;
}

/* Waits until a time of the settable clock, even if that clock is changed meanwhile, as the kernel does: it looks at the
 * clock at least every 50 ms. What ends early for this is a spurious wake-up, after which every caller waits again. To
 * wait again here would lose a signal that came between the timeout and the lock of the mutex.
 * The process uses this function only with conditions on that clock. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
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
  return result == ETIMEDOUT ? 0 : result;
}

/* The C11 equivalent, whose types are those of POSIX in glibc. */
int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict until) {
  switch (pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until)) {
    case 0: return thrd_success;
    case ETIMEDOUT: return thrd_timedout;
    default: return thrd_error;
  }
}
