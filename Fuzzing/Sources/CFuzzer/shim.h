#ifndef CFUZZER_SHIM_H
#define CFUZZER_SHIM_H

#include <stddef.h>
#include <stdint.h>

// libFuzzer as a library (LLVM, "LibFuzzer", "Using libFuzzer as a library"); no header of the toolchain declares it.
__attribute__((warn_unused_result))
int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*callback)(const uint8_t *data, size_t size));

#endif
