// A preloaded library for crash tests: makes file calls of a program fail, write less than requested, or kill it.
//
//   LD_PRELOAD=libdanling_faults.so DANLING_FAULTS_UNDER=/tmp/run DANLING_FAULTS="rename@*latest*:1:kill" PROGRAM
//
// DANLING_FAULTS: rules CALL[@GLOB]:WHEN:WHAT, separated by ';'. The first rule that applies to a call decides.
//   CALL  open (for writing), write (also pwrite, writev, sendfile, copy_file_range), fsync (also fdatasync), truncate,
//         rename, link, clone (a reflink), unlink (also remove, rmdir), mkdir, close (of a file open for writing), or
//         any
//   GLOB  which files, by the path below DANLING_FAULTS_UNDER (the new name in rename and link); * matches anything
//   WHEN  3: the third call that CALL and GLOB match; 3+: the third and all later ones; *: all. Each process counts
//         separately.
//   WHAT  the name of an errno (EIO, ENOSPC, EDQUOT, EROFS and others): the call fails with it and does nothing;
//         kill: the process is killed before the call; short: a write writes half of the bytes;
//         torn: a write writes half of the bytes, then the process is killed
//
// DANLING_FAULTS_UNDER: an absolute path; rules apply only to files below it. Unset: all files.
//
// DANLING_FAULTS_TRACE: a file, or a pipe as /proc/self/fd/N, to which the library writes a line CALL OUTCOME PATH for
// each of these calls. PATH is relative to DANLING_FAULTS_UNDER; OUTCOME is ok, failed (without a rule), or WHAT.
//
// An invalid rule ends the program with code 125, so that no test passes because nothing was injected. The library does
// not see calls inside libc (writes of stdio) and calls of statically linked programs. Every function is safe in
// threads and signal handlers: it takes no lock, allocates nothing, and looks the path up for each call.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum call { OPEN, WRITE, FSYNC, TRUNCATE, RENAME, LINK, CLONE, UNLINK, MKDIR, CLOSE, ANY };

static const char* const call_names[] = {"open",  "write",  "fsync", "truncate", "rename", "link",
                                         "clone", "unlink", "mkdir", "close",    "any"};

// The action of a rule; a positive number is an errno.
enum { PASS = 0, KILL = -1, SHORT = -2, TORN = -3 };

static const struct {
  const char* name;
  int value;
} outcomes[] = {{"kill", KILL},     {"short", SHORT},   {"torn", TORN},     {"EIO", EIO},       {"ENOSPC", ENOSPC},
                {"EDQUOT", EDQUOT}, {"EROFS", EROFS},   {"EACCES", EACCES}, {"EPERM", EPERM},   {"EFBIG", EFBIG},
                {"EINTR", EINTR},   {"EAGAIN", EAGAIN}, {"EMFILE", EMFILE}, {"ENFILE", ENFILE}, {"ENOENT", ENOENT},
                {"EEXIST", EEXIST}, {"EXDEV", EXDEV},   {"EMLINK", EMLINK}, {"EINVAL", EINVAL}, {"ENOTSUP", ENOTSUP},
                {"ENODEV", ENODEV}, {"ESTALE", ESTALE}, {"ENOMEM", ENOMEM}, {"ENOSYS", ENOSYS}};

struct rule {
  enum call call;
  char glob[256];
  long first, last;
  int outcome;
  atomic_long seen;
};

static struct rule rules[32];
static size_t rule_count;
static char under[PATH_MAX];
static char trace_path[PATH_MAX];
static bool active;

// ---- reading the rules ----------------------------------------------------------------------------------------------

static void say(const char* text) { (void)!syscall(SYS_write, 2, text, strlen(text)); }

static void refuse(const char* rule) {
  say("libdanling_faults: expected CALL[@GLOB]:WHEN:WHAT, got '");
  say(rule);
  say("'\n");
  _exit(125);
}

// Removes the text up to `mark` from *from and returns it; null if there is no mark.
static char* take(char** from, char mark) {
  char* end = strchr(*from, mark);
  if (end == NULL) {
    return NULL;
  }
  char* start = *from;
  *end = '\0';
  *from = end + 1;
  return start;
}

static void read_rule(char* text) {
  char whole[512];
  strncpy(whole, text, sizeof whole - 1);
  whole[sizeof whole - 1] = '\0';
  struct rule* rule = &rules[rule_count];
  char* call = take(&text, ':');
  char* when = call == NULL ? NULL : take(&text, ':');
  if (when == NULL || rule_count == sizeof rules / sizeof rules[0]) {
    refuse(whole);
  }
  char* glob = strchr(call, '@');
  strcpy(rule->glob, "*");
  if (glob != NULL) {
    *glob++ = '\0';
    if (strlen(glob) >= sizeof rule->glob) {
      refuse(whole);
    }
    strcpy(rule->glob, glob);
  }
  int found = -1;
  for (int i = 0; i <= ANY; ++i) {
    found = strcmp(call_names[i], call) == 0 ? i : found;
  }
  char* end = when;
  rule->first = strtol(when, &end, 10);
  rule->last = rule->first;
  if (strcmp(when, "*") == 0) {
    rule->first = 1;
    rule->last = LONG_MAX;
  } else if (rule->first < 1 || end == when || (strcmp(end, "") != 0 && strcmp(end, "+") != 0)) {
    refuse(whole);
  } else if (*end == '+') {
    rule->last = LONG_MAX;
  }
  rule->outcome = PASS;
  for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; ++i) {
    rule->outcome = strcmp(outcomes[i].name, text) == 0 ? outcomes[i].value : rule->outcome;
  }
  if (found < 0 || rule->outcome == PASS) {
    refuse(whole);
  }
  rule->call = (enum call)found;
  ++rule_count;
}

static void read_path(char* to, const char* name) {
  const char* value = getenv(name);
  if (value != NULL && strlen(value) < PATH_MAX) {
    strcpy(to, value);
  }
}

__attribute__((constructor)) static void read_environment(void) {
  static char text[8192];
  read_path(under, "DANLING_FAULTS_UNDER");
  read_path(trace_path, "DANLING_FAULTS_TRACE");
  for (size_t end = strlen(under); end > 0 && under[end - 1] == '/'; --end) {
    under[end - 1] = '\0';
  }
  const char* value = getenv("DANLING_FAULTS");
  if (value != NULL) {
    if (strlen(value) >= sizeof text) {
      refuse("a longer text than 8191 characters");
    }
    strcpy(text, value);
    for (char* next = text; next != NULL && *next != '\0';) {
      char* rule = next;
      next = strchr(rule, ';');
      if (next != NULL) {
        *next++ = '\0';
      }
      if (*rule != '\0') {
        read_rule(rule);
      }
    }
  }
  active = rule_count > 0 || trace_path[0] != '\0';
}

// ---- deciding -------------------------------------------------------------------------------------------------------

static bool matches(const char* glob, const char* text) {
  const char* star = NULL;
  const char* retry = NULL;
  while (*text != '\0') {
    if (*glob == '*') {
      star = glob++;
      retry = text;
    } else if (*glob == *text) {
      ++glob;
      ++text;
    } else if (star != NULL) {
      glob = star + 1;
      text = ++retry;
    } else {
      return false;
    }
  }
  while (*glob == '*') {
    ++glob;
  }
  return *glob == '\0';
}

// Returns the part of the path below `under`, or null for other files.
static const char* relative(const char* path) {
  const size_t length = strlen(under);
  if (strncmp(path, under, length) != 0 || (path[length] != '/' && path[length] != '\0')) {
    return NULL;
  }
  return path[length] == '/' ? path + length + 1 : path + length;
}

static const char* outcome_name(int outcome) {
  for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; ++i) {
    if (outcomes[i].value == outcome) {
      return outcomes[i].name;
    }
  }
  return "ok";
}

static void trace(enum call call, const char* outcome, const char* path) {
  if (trace_path[0] == '\0') {
    return;
  }
  const int saved = errno;
  struct iovec parts[] = {{(char*)call_names[call], strlen(call_names[call])},
                          {(char*)" ", 1},
                          {(char*)outcome, strlen(outcome)},
                          {(char*)" ", 1},
                          {(char*)path, strlen(path)},
                          {(char*)"\n", 1}};
  const long file = syscall(SYS_openat, AT_FDCWD, trace_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) {
    (void)!syscall(SYS_writev, file, parts, 6);
    syscall(SYS_close, file);
  }
  errno = saved;
}

_Noreturn static void die(void) {
  for (;;) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  }
}

// Returns the action for this call; performs a kill itself.
static int decide(enum call call, const char* path) {
  int outcome = PASS;
  for (size_t i = 0; i < rule_count; ++i) {
    struct rule* rule = &rules[i];
    if ((rule->call != call && rule->call != ANY) || !matches(rule->glob, path)) {
      continue;
    }
    const long seen = atomic_fetch_add(&rule->seen, 1) + 1;  // every rule counts calls, even if an earlier rule decides
    if (outcome == PASS && seen >= rule->first && seen <= rule->last) {
      outcome = rule->outcome;
    }
  }
  if ((outcome == SHORT || outcome == TORN) && call != WRITE) {
    outcome = outcome == TORN ? KILL : PASS;
  }
  if (outcome == KILL) {
    trace(call, "kill", path);
    die();
  }
  return outcome;
}

static bool path_of_descriptor(int file, char* out) {
  char link[32] = "/proc/self/fd/";
  char digits[16];
  size_t count = 0;
  unsigned rest = (unsigned)file;
  do {
    digits[count++] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest > 0);
  size_t at = strlen(link);
  while (count > 0) {
    link[at++] = digits[--count];
  }
  link[at] = '\0';
  const long length = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
  if (file < 0 || length <= 0) {
    return false;
  }
  out[length] = '\0';
  return true;
}

// Makes a path of the program absolute.
static bool path_of_name(int directory, const char* name, char* out) {
  if (name == NULL || strlen(name) >= PATH_MAX / 2) {
    return false;
  }
  if (name[0] == '/') {
    strcpy(out, name);
    return true;
  }
  size_t length = 0;
  if (directory == AT_FDCWD) {
    const long got = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/cwd", out, PATH_MAX / 2 - 2);
    length = got > 0 ? (size_t)got : 0;
  } else if (path_of_descriptor(directory, out)) {
    length = strlen(out);
  }
  if (length == 0 || length >= PATH_MAX / 2 - 1) {
    return false;
  }
  out[length] = '/';
  strcpy(out + length + 1, name[0] == '.' && name[1] == '/' ? name + 2 : name);
  return true;
}

// One call: begin() decides, end() traces.
struct event {
  enum call call;
  const char* path;  // relative to `under`; null: not affected by rules
  int outcome;
  char buffer[PATH_MAX];
};

static void begin(struct event* event, enum call call, bool known) {
  event->call = call;
  event->path = known ? relative(event->buffer) : NULL;
  event->outcome = event->path == NULL ? PASS : decide(call, event->path);
}

static long end(struct event* event, long result) {
  if (event->path != NULL) {
    trace(event->call,
          event->outcome != PASS ? outcome_name(event->outcome)
          : result < 0           ? "failed"
                                 : "ok",
          event->path);
  }
  if (event->outcome == TORN) {
    die();
  }
  return result;
}

static long fail(struct event* event) {
  errno = event->outcome;
  return end(event, -1);
}

#define WITH_DESCRIPTOR(CALL, FILE, CALLED)                        \
  do {                                                             \
    if (!active) return CALLED;                                    \
    struct event event;                                            \
    const int saved = errno;                                       \
    begin(&event, CALL, path_of_descriptor(FILE, event.buffer));   \
    errno = saved;                                                 \
    return event.outcome > 0 ? fail(&event) : end(&event, CALLED); \
  } while (0)

#define WITH_NAME(CALL, DIRECTORY, NAME, CALLED)                      \
  do {                                                                \
    if (!active) return CALLED;                                       \
    struct event event;                                               \
    const int saved = errno;                                          \
    begin(&event, CALL, path_of_name(DIRECTORY, NAME, event.buffer)); \
    errno = saved;                                                    \
    return event.outcome > 0 ? fail(&event) : end(&event, CALLED);    \
  } while (0)

// Performs a write; a rule may shorten SIZE.
#define WITH_WRITE(FILE, SIZE, CALLED)                                     \
  do {                                                                     \
    if (!active) return CALLED;                                            \
    struct event event;                                                    \
    const int saved = errno;                                               \
    begin(&event, WRITE, path_of_descriptor(FILE, event.buffer));          \
    errno = saved;                                                         \
    if ((event.outcome == SHORT || event.outcome == TORN) && (SIZE) > 1) { \
      (SIZE) /= 2;                                                         \
    }                                                                      \
    return event.outcome > 0 ? fail(&event) : end(&event, CALLED);         \
  } while (0)

// ---- the calls ------------------------------------------------------------------------------------------------------

static long do_open(int directory, const char* name, int flags, mode_t mode) {
  if ((flags & O_ACCMODE) == O_RDONLY && (flags & (O_CREAT | O_TRUNC)) == 0) {
    return syscall(SYS_openat, directory, name, flags, mode);
  }
  WITH_NAME(OPEN, directory, name, syscall(SYS_openat, directory, name, flags, mode));
}

static mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

#define OPEN_FUNCTION(NAME)                           \
  EXPORT int NAME(const char* name, int flags, ...) { \
    va_list arguments;                                \
    va_start(arguments, flags);                       \
    const mode_t mode = mode_of(flags, arguments);    \
    va_end(arguments);                                \
    return (int)do_open(AT_FDCWD, name, flags, mode); \
  }
#define OPENAT_FUNCTION(NAME)                                        \
  EXPORT int NAME(int directory, const char* name, int flags, ...) { \
    va_list arguments;                                               \
    va_start(arguments, flags);                                      \
    const mode_t mode = mode_of(flags, arguments);                   \
    va_end(arguments);                                               \
    return (int)do_open(directory, name, flags, mode);               \
  }
OPEN_FUNCTION(open)
OPEN_FUNCTION(open64)
OPENAT_FUNCTION(openat)
OPENAT_FUNCTION(openat64)

EXPORT int __open_2(const char* name, int flags);
EXPORT int __open64_2(const char* name, int flags);
EXPORT int __openat_2(int directory, const char* name, int flags);
EXPORT int __openat64_2(int directory, const char* name, int flags);
int __open_2(const char* name, int flags) { return (int)do_open(AT_FDCWD, name, flags, 0); }
int __open64_2(const char* name, int flags) { return (int)do_open(AT_FDCWD, name, flags, 0); }
int __openat_2(int directory, const char* name, int flags) { return (int)do_open(directory, name, flags, 0); }
int __openat64_2(int directory, const char* name, int flags) { return (int)do_open(directory, name, flags, 0); }

EXPORT int creat(const char* name, mode_t mode) {
  return (int)do_open(AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
EXPORT int creat64(const char* name, mode_t mode) {
  return (int)do_open(AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

EXPORT ssize_t write(int file, const void* data, size_t size) {
  WITH_WRITE(file, size, syscall(SYS_write, file, data, size));
}
EXPORT ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  WITH_WRITE(file, size, syscall(SYS_pwrite64, file, data, size, offset));
}
EXPORT ssize_t pwrite64(int file, const void* data, size_t size, off64_t offset) {
  WITH_WRITE(file, size, syscall(SYS_pwrite64, file, data, size, offset));
}
EXPORT ssize_t sendfile(int to, int from, off_t* offset, size_t size) {
  WITH_WRITE(to, size, syscall(SYS_sendfile, to, from, offset, size));
}
EXPORT ssize_t sendfile64(int to, int from, off64_t* offset, size_t size) {
  WITH_WRITE(to, size, syscall(SYS_sendfile, to, from, offset, size));
}
EXPORT ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t size,
                               unsigned flags) {
  WITH_WRITE(to, size, syscall(SYS_copy_file_range, from, from_offset, to, to_offset, size, flags));
}

// A short gather-write writes half of its first non-empty part.
static long do_writev(int file, const struct iovec* parts, int count, bool positioned, off_t offset) {
#define WRITEV(PARTS, COUNT)                                                                \
  (positioned ? syscall(SYS_pwritev, file, PARTS, (unsigned long)(COUNT), (long)offset, 0L) \
              : syscall(SYS_writev, file, PARTS, (unsigned long)(COUNT)))
  if (!active) {
    return WRITEV(parts, count);
  }
  struct event event;
  const int saved = errno;
  begin(&event, WRITE, path_of_descriptor(file, event.buffer));
  errno = saved;
  if (event.outcome > 0) {
    return fail(&event);
  }
  if (event.outcome == SHORT || event.outcome == TORN) {
    for (int i = 0; i < count; ++i) {
      if (parts[i].iov_len > 0) {
        const struct iovec part = {parts[i].iov_base, parts[i].iov_len > 1 ? parts[i].iov_len / 2 : 1};
        return end(&event, WRITEV(&part, 1));
      }
    }
  }
  return end(&event, WRITEV(parts, count));
}
EXPORT ssize_t writev(int file, const struct iovec* parts, int count) {
  return do_writev(file, parts, count, false, 0);
}
EXPORT ssize_t pwritev(int file, const struct iovec* parts, int count, off_t offset) {
  return do_writev(file, parts, count, true, offset);
}
EXPORT ssize_t pwritev64(int file, const struct iovec* parts, int count, off64_t offset) {
  return do_writev(file, parts, count, true, offset);
}

static long do_fsync(int file) { WITH_DESCRIPTOR(FSYNC, file, syscall(SYS_fsync, file)); }
static long do_fdatasync(int file) { WITH_DESCRIPTOR(FSYNC, file, syscall(SYS_fdatasync, file)); }
EXPORT int fsync(int file) { return (int)do_fsync(file); }
EXPORT int fdatasync(int file) { return (int)do_fdatasync(file); }

static long do_ftruncate(int file, off_t size) { WITH_DESCRIPTOR(TRUNCATE, file, syscall(SYS_ftruncate, file, size)); }
EXPORT int ftruncate(int file, off_t size) { return (int)do_ftruncate(file, size); }
EXPORT int ftruncate64(int file, off64_t size) { return (int)do_ftruncate(file, size); }
static long do_truncate(const char* name, off_t size) {
  WITH_NAME(TRUNCATE, AT_FDCWD, name, syscall(SYS_truncate, name, size));
}
EXPORT int truncate(const char* name, off_t size) { return (int)do_truncate(name, size); }
EXPORT int truncate64(const char* name, off64_t size) { return (int)do_truncate(name, size); }

static long do_rename(int from, const char* old_name, int to, const char* new_name, unsigned flags) {
  WITH_NAME(RENAME, to, new_name, syscall(SYS_renameat2, from, old_name, to, new_name, flags));
}
EXPORT int rename(const char* old_name, const char* new_name) {
  return (int)do_rename(AT_FDCWD, old_name, AT_FDCWD, new_name, 0);
}
EXPORT int renameat(int from, const char* old_name, int to, const char* new_name) {
  return (int)do_rename(from, old_name, to, new_name, 0);
}
EXPORT int renameat2(int from, const char* old_name, int to, const char* new_name, unsigned flags) {
  return (int)do_rename(from, old_name, to, new_name, flags);
}

static long do_link(int from, const char* old_name, int to, const char* new_name, int flags) {
  WITH_NAME(LINK, to, new_name, syscall(SYS_linkat, from, old_name, to, new_name, flags));
}
EXPORT int link(const char* old_name, const char* new_name) {
  return (int)do_link(AT_FDCWD, old_name, AT_FDCWD, new_name, 0);
}
EXPORT int linkat(int from, const char* old_name, int to, const char* new_name, int flags) {
  return (int)do_link(from, old_name, to, new_name, flags);
}

static long do_unlink(int directory, const char* name, int flags) {
  WITH_NAME(UNLINK, directory, name, syscall(SYS_unlinkat, directory, name, flags));
}
EXPORT int unlink(const char* name) { return (int)do_unlink(AT_FDCWD, name, 0); }
EXPORT int unlinkat(int directory, const char* name, int flags) { return (int)do_unlink(directory, name, flags); }

EXPORT int rmdir(const char* name) { return (int)do_unlink(AT_FDCWD, name, AT_REMOVEDIR); }
// Replaces libc's version, which calls an internal unlink that cannot be intercepted.
EXPORT int remove(const char* name) {
  struct stat status;
  const int saved = errno;
  const bool directory =
      syscall(SYS_newfstatat, AT_FDCWD, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
  errno = saved;
  return (int)do_unlink(AT_FDCWD, name, directory ? AT_REMOVEDIR : 0);
}

static long do_mkdir(int directory, const char* name, mode_t mode) {
  WITH_NAME(MKDIR, directory, name, syscall(SYS_mkdirat, directory, name, mode));
}
EXPORT int mkdir(const char* name, mode_t mode) { return (int)do_mkdir(AT_FDCWD, name, mode); }
EXPORT int mkdirat(int directory, const char* name, mode_t mode) { return (int)do_mkdir(directory, name, mode); }

EXPORT int ioctl(int file, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request != FICLONE && request != FICLONERANGE) {
    return (int)syscall(SYS_ioctl, file, request, argument);
  }
  WITH_DESCRIPTOR(CLONE, file, (int)syscall(SYS_ioctl, file, request, argument));
}

EXPORT int close(int file) {
  const int saved = errno;
  const long flags = active ? syscall(SYS_fcntl, file, F_GETFL) : -1;
  errno = saved;
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH) != 0) {
    return (int)syscall(SYS_close, file);
  }
  struct event event;
  begin(&event, CLOSE, path_of_descriptor(file, event.buffer));
  errno = saved;
  const long result = syscall(SYS_close, file);  // closes the file even if it returns an error
  return (int)(event.outcome > 0 ? fail(&event) : end(&event, result));
}
