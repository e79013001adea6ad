import Foundation
import FoundationNetworking
import StageSystem
import StageTransfer
import SystemPackage

/// Partial file of a download in this process, with its request, from which a later download resumes.
///
/// It is in its own directory among the temporary files, which the system may remove.
struct PartialDownload: Codable, Sendable {
    /// Mark that distinguishes this resume data from that of a background session.
    private static let kind = "download in a process, 1"
    private static let name = FilePath.Component("content")

    private static let prefix = "stagepack-download."
    private static var parent: FilePath { FilePath(FileManager.default.temporaryDirectory.path) }

    private var kind = Self.kind
    private var url: String
    private var method: String?
    private var fields: [String: String]
    /// `false` if the request neither sends nor stores cookies.
    private var handlesCookies: Bool?
    /// Name of the directory.
    private var directory: String
    /// Name of the file in the directory, once it is complete.
    private var fileName: String?

    /// Creates the directory of a new download.
    init(_ request: URLRequest) throws(FileError) {
        url = request.url?.absoluteURL.absoluteString ?? ""
        method = request.httpMethod
        fields = request.allHTTPHeaderFields ?? [:]
        handlesCookies = request.httpShouldHandleCookies
        let template = Self.parent.appending(Self.prefix + "XXXXXX")
        var name = Array(template.string.utf8CString)
        // mkdtemp(3) creates it with mode 0700.
        let isMade = unsafe name.withUnsafeMutableBufferPointer { buffer in
            guard let text = buffer.baseAddress else { return false }
            return unsafe mkdtemp(text) != nil
        }
        guard isMade else {
            throw FileError("create", path: template, errno: Errno(rawValue: errno))
        }
        let path = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        directory = FilePath(path).lastComponent?.string ?? ""
    }

    /// Decodes resume data that an application has stored; `nil` for any other data.
    init?(_ data: Data) {
        // The data may come from anywhere: it must not make this type remove any other directory.
        guard let value = try? JSONDecoder().decode(Self.self, from: data), value.kind == Self.kind,
            value.directory.hasPrefix(Self.prefix), !value.directory.contains("/")
        else { return nil }
        self = value
    }

    /// Resume data for the application.
    var data: Data? { try? JSONEncoder().encode(self) }

    /// The request of the download.
    var request: URLRequest? {
        guard let url = URL(string: url) else { return nil }
        var request = URLRequest(url: url)
        request.httpMethod = method
        request.allHTTPHeaderFields = fields
        request.httpShouldHandleCookies = handlesCookies ?? true
        return request
    }

    /// Opens the partial file, which no other download may use while the lock exists.
    ///
    /// - Throws: ``TransferError`` if the directory no longer exists, or another user may write to it.
    func open() throws(TransferError) -> (PartialFile, PartialLock) {
        let folder: Directory
        let lock: PartialLock
        do throws(FileError) {
            folder = try openDirectory()
            guard let status = try folder.status("."), status.owner == UserIdentity.current.user,
                status.mode & 0o022 == 0
            else { throw FileError("open", path: folder.path, errno: .permissionDenied) }
            let file = try folder.file(updating: "lock", permissions: .privateFile)
            guard let taken = try FileLock.attempt(file, mode: .exclusive) else {
                throw FileError("lock", path: folder.path, errno: .resourceTemporarilyUnavailable)
            }
            lock = PartialLock(taken)
        } catch {
            throw .storage(error)
        }
        return try (PartialFile.open(Self.name, in: folder), lock)
    }

    /// Records that the file is complete, under a name.
    mutating func complete(_ name: String) { fileName = name }

    /// URL of the complete file.
    var file: URL {
        let path = Self.parent.appending(directory).appending(fileName ?? "content")
        return URL(fileURLWithPath: path.string)
    }

    /// Creates the file, for content that cannot be resumed.
    func makeFile() throws(FileError) -> File {
        try openDirectory().file(updating: FilePath(Self.name.string), permissions: .privateFile)
    }

    /// Removes the directory; a file that was moved elsewhere stays there.
    func remove() {
        // The system removes remaining temporary files.
        guard let folder = try? openDirectory(), let names = try? folder.entries() else { return }
        for entry in names { _ = try? folder.remove(entry.name) }
        unsafe _ = rmdir(Self.parent.appending(directory).string)
    }

    /// Opens the directory without following a symbolic link.
    private func openDirectory() throws(FileError) -> Directory {
        let parent = try Directory.open(Self.parent)
        guard let folder = try parent.directory(FilePath(directory)) else {
            throw FileError(
                "open",
                path: Self.parent.appending(directory),
                errno: .noSuchFileOrDirectory
            )
        }
        return folder
    }
}

/// Lock that keeps a second download from using the same partial file.
final class PartialLock: Sendable {
    private let lock: FileLock

    init(_ lock: consuming FileLock) { self.lock = lock }
}
