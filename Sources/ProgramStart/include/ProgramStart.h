// Gives a program its arguments also without /proc, has it reap its children, and removes the environment variables
// that a privileged process does not accept, before any library reads them. A target that depends on this one needs
// no call.

// The version of both programs and of their packages, defined only here. `Scripts/version` prints it.
#define STAGEPACK_VERSION "0.1.0"

/// Returns the commit that `make` built, in hexadecimal; a null pointer if it is unknown.
const char *stage_commit(void);
