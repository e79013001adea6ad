// Has a program know its arguments whatever is mounted, and remove, when it is started with privileges, the
// variables that it does not believe, before any library reads them. A target that depends on this one needs to
// call nothing.

// The version of both programs and of their packages: the only place that has it. `Scripts/version` prints it.
#define STAGEPACK_VERSION "0.1.0"

/// The commit that `make` built this from, in hexadecimal; a null pointer where that is not known.
const char *stage_commit(void);
