import CLinux

/// Settings of the C library's memory allocator.
package enum HeapMemory {
    /// Limits the number of heaps, and allocates large blocks outside of them.
    ///
    /// By default the allocator creates up to eight heaps for each processor, and memory that one thread has
    /// freed is not reused by threads of other heaps. Also, after a block of megabytes has been freed, later
    /// blocks of that size stay in the heap.
    ///
    /// Programs call this at their start. Libraries must not: the allocator belongs to the program.
    package static func limitArenas() {
        // On an error, the process uses more memory; nothing else changes.
        _ = stage_limit_arenas(2)
        _ = stage_map_from(512 << 10)
    }

    /// Returns free memory to the system, after a large temporary allocation.
    package static func release() {
        stage_trim_memory()
    }
}
