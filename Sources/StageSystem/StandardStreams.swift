import CLinux

/// The three standard streams of a process.
package enum StandardStreams {
    /// Opens `/dev/null` for each standard stream that is closed, so that no file gets descriptor 0, 1 or 2:
    /// printed text would be written into it.
    ///
    /// For programs, before all else. Reads and writes of such a stream fail as on a closed one.
    package static func openMissing() { stage_fill_streams() }
}
