import FoundationEssentials
import StageModel
import StageSystem
import SystemPackage

/// The small JSON files of a container.
enum JSONRecord {
    /// The largest record that is read: a stored manifest, of which each byte may take six as text
    /// in JSON.
    static let sizeLimit = 6 * ManifestLimits.byteCount + (1 << 20)

    /// Reads the record at `name`, or returns `nil` if there is none or it is damaged, as a power cut
    /// can leave it.
    static func readIfWhole<Value: Decodable>(
        _ type: Value.Type,
        at name: FilePath,
        in directory: Directory
    ) throws(ContainerError) -> Value? {
        do throws(ContainerError) {
            return try read(type, at: name, in: directory)
        } catch {
            guard case .damagedRecord = error else { throw error }
            return nil
        }
    }

    /// Reads the record at `name`, or returns `nil` if there is none.
    static func read<Value: Decodable>(
        _ type: Value.Type,
        at name: FilePath,
        in directory: Directory
    ) throws(ContainerError) -> Value? {
        guard let bytes = try bytes(of: name, in: directory) else { return nil }
        do {
            return try JSONDecoder().decode(type, from: Data(bytes))
        } catch {
            throw .damagedRecord(directory.path.pushing(name), detail: "\(error)")
        }
    }

    /// Reads the bytes of the record at `name`, or returns `nil` if there is none.
    static func bytes(
        of name: FilePath,
        in directory: Directory
    ) throws(ContainerError) -> [UInt8]? {
        do throws(FileError) {
            return try directory.bytes(of: name, limit: sizeLimit)
        } catch {
            guard error.isWrongKindOrSize else { throw .file(error) }
            let detail = error.isNotRegularFile ? "it is not a regular file" : "it is too large"
            throw .damagedRecord(directory.path.pushing(name), detail: detail)
        }
    }

    /// Puts the record at `name`, in one step.
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
        try ContainerError.wrapping { () throws(FileError) in
            try directory.write(bytes, to: name, durably: durably, exactly: .file)
        }
    }
}

/// What `container.json` holds.
struct ContainerRecord: Codable {
    var formatVersion: Int

    /// Reads the record, or returns `nil` if the directory is not a container yet.
    static func read(from root: Directory) throws(ContainerError) -> ContainerRecord? {
        guard
            let record = try JSONRecord.read(
                ContainerRecord.self,
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
