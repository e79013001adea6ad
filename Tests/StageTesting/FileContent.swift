import StageSystem
package import SystemPackage

/// The text of a file; empty if there is none.
package func text(of path: FilePath) throws -> String {
    guard FileStatus.exists(path) else { return "" }
    return String(decoding: try bytes(of: path), as: UTF8.self)
}

/// The content of a file.
package func bytes(of path: FilePath) throws -> [UInt8] {
    let file = try File.open(reading: path)
    // The size is not used: files that the kernel generates have none.
    var content: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 1 << 20)
    while case let count = try file.read(into: &buffer, at: Int64(content.count)), count > 0 {
        content += buffer[..<count]
    }
    return content
}
