public import StageModel
import StageSystem
import SystemPackage

/// A pin that keeps a pack at its staged generation even if a manifest offers a newer one.
///
/// A pin is a file of the container, and is effective while its version and content digest are those of the
/// current generation. So the link of the pack alone decides: a rollback writes the pin first and then
/// switches the link, and a crash in between leaves a pin without effect.
public struct Pin: Hashable, Sendable, Codable {
    /// The pinned version.
    public var version: Int
    /// The `Pack.contentDigest` of the version.
    public var contentDigest: Digest
    /// The time of pinning, in seconds since 1970.
    public var pinnedAt: Int64
    /// The name of the generation that a rollback replaced; `nil` for a requested pin.
    public var rolledBackFrom: String?
    /// The time at which the replaced generation was pinned, in seconds since 1970; `nil` if it was not pinned.
    ///
    /// An undone rollback, or one that did not complete, restores that pin.
    public private(set) var earlierPinnedAt: Int64?

    private enum CodingKeys: String, CodingKey {
        case version, pinnedAt, rolledBackFrom, earlierPinnedAt
        case contentDigest = "archiveDigest"
    }

    /// The generation that a rollback replaced; `nil` for a requested pin.
    public var replaced: GenerationName? {
        rolledBackFrom.flatMap { FilePath.Component($0) }.map(GenerationName.init)
    }

    /// The pin of the replaced generation before the rollback; `nil` if it was not pinned.
    var earlier: Pin? {
        guard let content = replaced?.content, let earlierPinnedAt else { return nil }
        return Pin(content, pinnedAt: earlierPinnedAt)
    }

    /// Creates a requested pin.
    init(_ content: GenerationName.Content, pinnedAt: Int64) {
        version = content.version
        contentDigest = content.contentDigest
        self.pinnedAt = pinnedAt
    }

    /// Creates the pin of a rollback from a generation, which `earlier` holds.
    init(
        _ content: GenerationName.Content,
        pinnedAt: Int64,
        replacing generation: GenerationName,
        heldBy earlier: Pin?
    ) {
        self.init(content, pinnedAt: pinnedAt)
        rolledBackFrom = generation.description
        earlierPinnedAt = earlier?.pinnedAt
    }

    /// Returns whether the pin has the version and content of this generation.
    public func holds(_ generation: GenerationName) -> Bool {
        guard let content = generation.content else { return false }
        return content.version == version && content.contentDigest == contentDigest
    }

    /// Returns whether the pin has the version and content of this pack.
    public func holds(_ pack: Pack) -> Bool {
        pack.version == version && pack.contentDigest == contentDigest
    }
}

extension Pin: JSONReadable {
    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: CodingKeys.self)
        version = try members.number(.version, in: .min ... .max)
        contentDigest = try members.digest(.contentDigest)
        pinnedAt = Int64(try members.number(.pinnedAt, in: RecordLimits.times))
        rolledBackFrom = members.has(.rolledBackFrom) ? try members.string(.rolledBackFrom) : nil
        earlierPinnedAt =
            members.has(.earlierPinnedAt)
            ? Int64(try members.number(.earlierPinnedAt, in: RecordLimits.times)) : nil
    }
}

extension ContainerReader {
    /// Returns the effective pin of the pack, or `nil` if there is none.
    public func pin(of id: PackID) throws(ContainerError) -> Pin? {
        guard let pin = try recordedPin(of: id), let current = try currentGeneration(of: id) else {
            return nil
        }
        // A rollback that did not complete leaves the pin before it in effect.
        return [pin, pin.earlier].compactMap(\.self).first { $0.holds(current) }
    }

    /// Returns the effective pins, by pack.
    public func pins() throws(ContainerError) -> [PackID: Pin] {
        let ids = try ContainerError.wrapping { () throws(FileError) -> [PackID] in
            guard let pins = try root.directory(FilePath(ContainerLayout.pins)) else { return [] }
            // Ignores temporary files.
            return try pins.entries().filter { $0.path.string.hasSuffix(".json") }
                .compactMap { try? PackID(String($0.path.string.dropLast(5))) }
        }
        var found: [PackID: Pin] = [:]
        for id in ids { found[id] = try pin(of: id) }
        return found
    }

    /// Returns the recorded pin of the pack, effective or not; a damaged one counts as none.
    func recordedPin(of id: PackID) throws(ContainerError) -> Pin? {
        let name = FilePath(ContainerLayout.pins).appending(id.pinName)
        return try JSONRecord.readIfIntact(parsing: Pin.self, at: name, in: root)
    }
}

extension Container {
    /// Pins the pack to the staged generation until ``release(_:)``.
    ///
    /// - Parameters:
    ///   - lock: The lock on the pack.
    ///   - version: The version that must be staged; `nil` for any.
    ///   - now: The time, in seconds since 1970.
    /// - Returns: The effective pin.
    /// - Throws: ``ContainerError/notStaged(_:)`` if the pack is not staged;
    ///   ``ContainerError/otherVersion(_:expected:staged:)`` if another version is.
    public func pin(
        _ lock: PackLock,
        version: Int? = nil,
        now: Int64
    ) throws(ContainerError) -> Pin {
        guard let content = try reader.currentGeneration(of: lock.id)?.content else {
            throw .notStaged(lock.id)
        }
        if let version, version != content.version {
            throw .otherVersion(lock.id, expected: version, staged: content.version)
        }
        // An existing pin stays, since the pin of a rollback records how to undo the rollback.
        if let pin = try reader.pin(of: lock.id) { return pin }
        let pin = Pin(content, pinnedAt: now)
        try write(pin, of: lock.id)
        return pin
    }

    /// Removes the pin of a pack, and returns it; returns `nil` if no pin was effective.
    public func release(_ lock: PackLock) throws(ContainerError) -> Pin? {
        let pin = try reader.pin(of: lock.id)
        try removePin(of: lock.id)
        return pin
    }

    func write(_ pin: Pin, of id: PackID) throws(ContainerError) {
        let pins = try ContainerError.wrapping { () throws(FileError) in
            let pins = try root.makeDirectory(
                FilePath(ContainerLayout.pins),
                exactly: .directory
            )
            try root.synchronize()
            return pins
        }
        try JSONRecord.write(pin, to: id.pinName, in: pins, durably: true)
    }

    /// Removes the file of the pack's pin durably, if it exists.
    func removePin(of id: PackID) throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in
            guard let pins = try root.directory(FilePath(ContainerLayout.pins)) else { return }
            if try pins.remove(id.pinName) { try pins.synchronize() }
        }
    }
}

extension PackID {
    /// The name of the pack's pin in `pins/`.
    var pinName: FilePath.Component { FilePath.Component(known: "\(text).json") }
}
