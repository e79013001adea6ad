import CLinux

/// How the process keeps the memory that it allocates.
public enum HeapMemory {
    /// Lets all threads share a few heaps: by default each of them gets one of its own, up to eight for a
    /// processor, and what one has freed is of no use to the others.
    ///
    /// For programs, at their start; a library leaves it to the program that it is in.
    public static func shareHeaps() {
        // Without it the process needs more memory, and nothing else.
        _ = stage_limit_arenas(2)
    }

    /// Gives what is free back to the system, after something large was needed for a short time.
    public static func release() {
        stage_trim_memory()
    }
}
