package import SystemPackage

/// The connection of a program's output with the journal of systemd (systemd.exec(5), `JOURNAL_STREAM`).
package enum JournalStream {
    /// Returns whether a file is the stream that the service manager has connected to the journal.
    ///
    /// The journal takes the priority of a line from `<N>` at its start (sd-daemon(3)), and has its time.
    package static func isConnected(
        to file: FileDescriptor,
        environment: [String: String]
    ) -> Bool {
        guard let text = environment["JOURNAL_STREAM"],
            let status = FileStatus(of: file)
        else { return false }
        return text == "\(status.device):\(status.inode)"
    }
}
