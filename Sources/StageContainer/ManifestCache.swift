package import StageSystem

/// The stored manifests that a process has read, so that it reads again only files that have changed.
///
/// Does no I/O. Each pass over the files starts with ``begin(at:)``, and forgets the files that the previous pass did
/// not find.
package struct ManifestCache: Sendable {
    private struct Entry {
        /// The record; `nil` if it is damaged.
        var record: StoredManifest?
    }

    private var previous: [FileIdentity: Entry] = [:]
    private var current: [FileIdentity: Entry] = [:]
    private var now: Int64 = 0

    /// Creates an empty cache.
    package init() {}

    /// Starts a pass.
    ///
    /// - Parameter now: The time in seconds since 1970: the record of a file that changed just before is not kept,
    ///   because a further change could leave the identity of the file as it is.
    package mutating func begin(at now: Int64) {
        previous = current
        current = [:]
        self.now = now
    }

    /// Returns the record of a file, after reading it with `read` if it is not known; `nil` if it is damaged.
    package mutating func record(
        of identity: FileIdentity,
        reading read: () throws(ContainerError) -> StoredManifest?
    ) throws(ContainerError) -> StoredManifest? {
        if let known = current[identity] ?? previous[identity] {
            current[identity] = known
            return known.record
        }
        let record = try read()
        if identity.hasSettled(at: now) { current[identity] = Entry(record: record) }
        return record
    }
}
