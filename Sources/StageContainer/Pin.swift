public import StageModel
import StageSystem
import SystemPackage

/// What holds a pack at the generation that is staged, whatever newer one a manifest offers.
///
/// A pin is a file of the container, and holds while the content that it names is the one that is
/// staged. So it is the link of the pack alone that decides: a rollback puts the pin in place first and
/// then switches the link, and a crash in between leaves a pin that holds nothing.
public struct Pin: Hashable, Sendable, Codable {
    /// The version that is held.
    public var version: Int
    /// The ``StageModel/Pack/contentDigest`` of the version.
    public var contentDigest: Digest
    /// Since when, in seconds since 1970.
    public var pinnedAt: Int64
    /// The name of the generation that a rollback has replaced; `nil` for a pin that was asked for.
    public var rolledBackFrom: String?

    private enum CodingKeys: String, CodingKey {
        case version, pinnedAt, rolledBackFrom
        case contentDigest = "archiveDigest"
    }

    /// The generation that a rollback has replaced, where it was one that pinned the pack.
    public var replaced: GenerationName? {
        rolledBackFrom.flatMap { FilePath.Component($0) }.map(GenerationName.init)
    }

    init(_ content: GenerationName.Content, pinnedAt: Int64, replacing: GenerationName?) {
        version = content.version
        contentDigest = content.contentDigest
        self.pinnedAt = pinnedAt
        rolledBackFrom = replacing?.description
    }

    /// Whether it is this generation that the pin names.
    public func holds(_ generation: GenerationName) -> Bool {
        guard let content = generation.content else { return false }
        return content.version == version && content.contentDigest == contentDigest
    }

    /// Whether it is this pack's content that the pin names.
    public func holds(_ pack: Pack) -> Bool {
        pack.version == version && pack.contentDigest == contentDigest
    }
}

extension Pin: JSONReadable {
    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: CodingKeys.self)
        version = try members.number(.version, in: .min ... .max)
        contentDigest = try members.digest(.contentDigest)
        pinnedAt = Int64(try members.number(.pinnedAt, in: .min ... .max))
        rolledBackFrom = members.has(.rolledBackFrom) ? try members.string(.rolledBackFrom) : nil
    }
}

extension ContainerReader {
    /// Returns the pin that holds the pack, or `nil` if none does.
    public func pin(of id: PackID) throws(ContainerError) -> Pin? {
        guard let pin = try recordedPin(of: id), let current = try currentGeneration(of: id),
            pin.holds(current)
        else { return nil }
        return pin
    }

    /// Returns the pins that hold packs, by pack.
    public func pins() throws(ContainerError) -> [PackID: Pin] {
        let ids = try ContainerError.wrapping { () throws(FileError) -> [PackID] in
            guard let pins = try root.directory(FilePath(ContainerLayout.pins)) else { return [] }
            // Names that are no pack's are files about to be put in place.
            return try pins.entries().filter { $0.name.string.hasSuffix(".json") }
                .compactMap { try? PackID(String($0.name.string.dropLast(5))) }
        }
        var found: [PackID: Pin] = [:]
        for id in ids { found[id] = try pin(of: id) }
        return found
    }

    /// The pin that the pack's file has, whether or not it holds; a damaged one counts as none.
    func recordedPin(of id: PackID) throws(ContainerError) -> Pin? {
        let name = FilePath(ContainerLayout.pins).appending(id.pinName)
        return try JSONRecord.readIfWhole(parsing: Pin.self, at: name, in: root)
    }
}

extension Container {
    /// Holds the pack at the generation that is staged until ``release(_:)``.
    ///
    /// - Parameters:
    ///   - lock: The lock on the pack.
    ///   - version: The version that it has to be; `nil` for whatever is staged.
    ///   - now: The time, in seconds since 1970.
    /// - Returns: The pin that holds the pack from now on.
    /// - Throws: ``ContainerError/notStaged(_:)`` if nothing is staged, and
    ///   ``ContainerError/otherVersion(_:expected:staged:)``.
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
        // One that a rollback made stays what it is: it knows the way back.
        if let pin = try reader.pin(of: lock.id) { return pin }
        let pin = Pin(content, pinnedAt: now, replacing: nil)
        try write(pin, of: lock.id)
        return pin
    }

    /// Lets a pack be updated again, and returns the pin that held it; `nil` if none did.
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

    /// Removes the file of the pack's pin, if there is one, durably.
    func removePin(of id: PackID) throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in
            guard let pins = try root.directory(FilePath(ContainerLayout.pins)) else { return }
            if try pins.remove(id.pinName) { try pins.synchronize() }
        }
    }
}

extension PackID {
    /// The name of the pack's pin in the directory of pins.
    var pinName: FilePath.Component {
        guard let name = FilePath.Component("\(text).json") else {
            preconditionFailure("an identifier is a file name")
        }
        return name
    }
}
