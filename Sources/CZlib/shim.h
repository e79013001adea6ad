// Typed wrappers around the macros of zlib that set up raw streams (RFC 1951).
#pragma once
#include <zlib.h>

#define STAGE_ZLIB_CHECKED __attribute__((warn_unused_result))

/// Sets up a compressor with a window of 2 to the power of `bits` bytes, 9 to 15 (deflateInit2 in zlib.h).
STAGE_ZLIB_CHECKED static inline int stage_deflate_init(z_stream *stream, int level, int bits) {
    return deflateInit2(stream, level, Z_DEFLATED, -bits, 8, Z_DEFAULT_STRATEGY);
}

/// Sets up a decompressor with a window of 2 to the power of `bits` bytes, 8 to 15 (inflateInit2 in zlib.h).
STAGE_ZLIB_CHECKED static inline int stage_inflate_init(z_stream *stream, int bits) {
    return inflateInit2(stream, -bits);
}
