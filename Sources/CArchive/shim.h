// libarchive, and typed wrappers for what it declares as variadic.
#pragma once
#include <archive.h>
#include <archive_entry.h>

/// Sets the error that a callback reports: a number of errno(3), and words.
static inline void stage_archive_set_error(struct archive *archive, int number, const char *words) {
    archive_set_error(archive, number, "%s", words);
}
