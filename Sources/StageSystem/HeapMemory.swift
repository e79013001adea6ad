import CLinux

/// How the process keeps the memory that it allocates.
public enum HeapMemory {
    /// Lets all threads share a few heaps, and keeps large pieces out of them: by default each thread gets
    /// a heap of its own, up to eight for a processor, and what one has freed is of no use to the others;
    /// and where a piece of megabytes was freed once, later ones stay in the heap.
    ///
    /// For programs, at their start; a library leaves it to the program that it is in.
    public static func shareHeaps() {
        // Without it the process needs more memory, and nothing else.
        _ = stage_limit_arenas(2)
        _ = stage_map_from(512 << 10)
    }

    /// Gives what is free back to the system, after something large was needed for a short time.
    public static func release() {
        stage_trim_memory()
    }
}
