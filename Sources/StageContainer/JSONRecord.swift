import FoundationEssentials
package import StageModel
import StageSystem
import SystemPackage

/// Reads and writes the small JSON files of a container.
enum JSONRecord {
    /// The maximum size of a record, in bytes: a stored manifest, each byte of which may be escaped as six
    /// bytes.
    static let sizeLimit = 6 * ManifestLimits.byteCount + (1 << 20)

    /// Reads the record at `name`; returns `nil` if it does not exist or is damaged, for example after a power
    /// failure.
    static func readIfIntact<Value: Decodable>(
        _ type: Value.Type,
        at name: FilePath,
        in directory: Directory
    ) throws(ContainerError) -> Value? {
        try passingOverDamage { () throws(ContainerError) in
            try read(type, at: name, in: directory)
        }
    }

    /// Reads the record at `name`; returns `nil` if it does not exist.
    static func read<Value: Decodable>(
        _ type: Value.Type,
        at name: FilePath,
        in directory: Directory
    ) throws(ContainerError) -> Value? {
        guard let bytes = try bytes(of: name, in: directory) else { return nil }
        do {
            return try JSONDecoder().decode(type, from: Data(bytes))
        } catch let error as DecodingError {
            throw .damagedRecord(directory.path.pushing(name), detail: error.text(in: bytes))
        } catch {
            throw .damagedRecord(directory.path.pushing(name), detail: "\(error)")
        }
    }

    /// Reads the record at `name` with the type's own parser; returns `nil` if it does not exist.
    ///
    /// For records that are large or numerous: Foundation's decoder takes about ten times as long.
    static func read<Value: JSONReadable>(
        parsing type: Value.Type,
        at name: FilePath,
        in directory: Directory
    ) throws(ContainerError) -> Value? {
        guard let bytes = try bytes(of: name, in: directory) else { return nil }
        do throws(ManifestError) {
            return try Value(reading: try JSONNode(json: bytes))
        } catch {
            throw .damagedRecord(directory.path.pushing(name), detail: "\(error)")
        }
    }

    /// Reads the record at `name` with the type's own parser; returns `nil` if it does not exist or is
    /// damaged.
    static func readIfIntact<Value: JSONReadable>(
        parsing type: Value.Type,
        at name: FilePath,
        in directory: Directory
    ) throws(ContainerError) -> Value? {
        try passingOverDamage { () throws(ContainerError) in
            try read(parsing: type, at: name, in: directory)
        }
    }

    private static func passingOverDamage<Value>(
        _ read: () throws(ContainerError) -> Value?
    ) throws(ContainerError) -> Value? {
        do throws(ContainerError) {
            return try read()
        } catch {
            guard case .damagedRecord = error else { throw error }
            return nil
        }
    }

    /// Reads the bytes of the record at `name`; returns `nil` if it does not exist.
    ///
    /// Too many combining characters in a row, which are slow to compare, count as damage: another user may own the
    /// container.
    static func bytes(
        of name: FilePath,
        in directory: Directory
    ) throws(ContainerError) -> [UInt8]? {
        let bytes: [UInt8]?
        do throws(FileError) {
            bytes = try directory.bytes(of: name, limit: sizeLimit)
        } catch {
            guard error.isWrongKindOrSize else { throw .file(error) }
            let detail = error.isNotRegularFile ? "it is not a regular file" : "it is too large"
            throw .damagedRecord(directory.path.pushing(name), detail: detail)
        }
        let limit = CombiningSequence.quotationLimit
        if let bytes, CombiningSequence.excess(inJSON: bytes.span, limit: limit) != nil {
            throw .damagedRecord(
                directory.path.pushing(name),
                detail: "it has more than \(limit) combining characters in a row"
            )
        }
        return bytes
    }

    /// Writes the record at `name` atomically.
    static func write<Value: Encodable>(
        _ value: Value,
        to name: FilePath.Component,
        in directory: Directory,
        durably: Bool
    ) throws(ContainerError) {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes, .prettyPrinted]
        let bytes: [UInt8]
        do {
            bytes = Array(try encoder.encode(value))
        } catch {
            preconditionFailure("a record is always JSON: \(error)")
        }
        try write(bytes, to: name, in: directory, durably: durably)
    }

    /// Writes the bytes of a record at `name` atomically.
    ///
    /// Cuts sequences of combining characters that ``bytes(of:in:)`` would count as damage: text of other programs is in
    /// messages.
    static func write(
        _ bytes: [UInt8],
        to name: FilePath.Component,
        in directory: Directory,
        durably: Bool
    ) throws(ContainerError) {
        let readable = CombiningSequence.shortened(inJSON: bytes)
        try ContainerError.wrapping { () throws(FileError) in
            try directory.write(readable, to: name, durably: durably, exactly: .file)
        }
    }
}

/// Limits on the numbers in records, within which calculations with them do not overflow.
///
/// A record, or an entry of a history, with other numbers is damaged.
package enum RecordLimits {
    /// Times in seconds since 1970, until the end of the year 9999.
    package static let times = 0...253_402_300_799
    /// Numbers of consecutive failed runs.
    package static let failures = 0...(1 << 31)
    /// The maximum number of directories of a pack.
    package static let directories = (1 << 31) - 1
    /// The maximum number of bytes to transfer for a pack.
    package static let downloadSize = ByteCount(1 << 50)
    /// The maximum number of bytes that are counted before the first launch.
    package static let spent = ByteCount((1 << 60) - 1)
}

/// The content of `container.json`.
struct ContainerRecord: Encodable, JSONReadable {
    var formatVersion: Int

    private enum CodingKeys: CodingKey { case formatVersion }

    init(formatVersion: Int) { self.formatVersion = formatVersion }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: CodingKeys.self)
        formatVersion = try members.number(.formatVersion, in: .min ... .max)
    }

    /// Reads the record; returns `nil` if the directory is not a container yet.
    static func read(from root: Directory) throws(ContainerError) -> ContainerRecord? {
        guard
            let record = try JSONRecord.read(
                parsing: ContainerRecord.self,
                at: FilePath(ContainerLayout.record),
                in: root
            )
        else { return nil }
        guard record.formatVersion == ContainerLayout.formatVersion else {
            throw .unknownFormat(
                root.path,
                found: record.formatVersion,
                known: ContainerLayout.formatVersion
            )
        }
        return record
    }
}
