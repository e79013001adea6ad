import FoundationEssentials

/// A directory whose files are replaced as a whole.
struct MetadataDirectory {
    let path: String

    func bytes(of name: String) throws -> [UInt8] { try bytes(atPath: "\(path)/\(name)") }

    func bytes(atPath path: String) throws -> [UInt8] {
        guard let data = FileManager.default.contents(atPath: path) else {
            throw ClientError("'\(path)' cannot be read")
        }
        return Array(data)
    }

    func store(_ bytes: [UInt8], as name: String) throws {
        try Data(bytes).write(to: URL(filePath: "\(path)/\(name)"), options: .atomic)
    }

    func remove(_ name: String) throws {
        try FileManager.default.removeItem(atPath: "\(path)/\(name)")
    }
}
