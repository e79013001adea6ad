import CLinux

/// The three standard streams of a process.
public enum StandardStreams {
    /// Puts `/dev/null` in the place of those that whoever started the process has closed, so that no file
    /// becomes one of them: what is printed would be written into it.
    ///
    /// For programs, before anything else. Reading and writing such a stream fails as on a closed one.
    public static func fill() { stage_fill_streams() }
}
