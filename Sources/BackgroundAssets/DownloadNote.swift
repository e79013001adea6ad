import Foundation
import StageControl
import StageExtension
import StageModel

/// Data that the daemon stores with a task but that has no member in a request, so that every process of the
/// application finds the same download.
struct DownloadNote: Hashable, Codable {
    /// The application's name of the download.
    var identifier: String
    /// The unique name, which distinguishes downloads with the same identifier.
    var uniqueIdentifier: String
    /// The application's priority, which has a finer scale than the daemon's.
    var priority: Int

    /// Creates the note of a download.
    init(_ download: BADownload) {
        identifier = download.identifier
        uniqueIdentifier = download.uniqueIdentifier
        priority = download.priority.rawValue
    }

    /// Reads the note of a task; a task without a note is identified by its token.
    init(_ task: TransferTask) {
        let text = Data((task.request.description ?? "").utf8)
        if let note = try? JSONDecoder().decode(Self.self, from: text) {
            self = note
        } else {
            identifier = task.request.token
            uniqueIdentifier = task.request.token
            priority = 0
        }
    }

    /// The first part of the tokens of downloads with an identifier, by which the daemon lists them.
    ///
    /// Percent-encoded and, because tokens are limited, shortened: the notes distinguish downloads whose long
    /// identifiers begin with the same text.
    static func token(of identifier: String) -> String {
        String(identifier.percentEncoded().prefix(200))
    }

    /// The text that the daemon stores.
    var text: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        // Encoding strings and numbers cannot fail.
        return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }
}

extension TransferRequest {
    /// Creates the request of a download.
    init(_ download: ExtensionURLDownload, note: DownloadNote) {
        let token = "\(DownloadNote.token(of: note.identifier))/\(UUID().uuidString)"
        self.init(token: token, kind: .download, url: download.url)
        size = ByteCount(Int64(download.fileSize))
        headers = download.headers.isEmpty ? nil : download.headers
        description = note.text
        let lowest = BADownload.Priority.min.rawValue
        let highest = BADownload.Priority.max.rawValue
        let number = min(max(note.priority, lowest), highest)
        priority = Double(number - lowest) / Double(highest - lowest)
    }
}

extension TransferRequest {
    /// Header fields that the application has set.
    ///
    /// The daemon hides a credential that answered a challenge. Another download of the file is challenged again.
    fileprivate var headersOfApplication: [String: String] {
        let headers = headers ?? [:]
        guard hasChallengeCredential == true else { return headers }
        return headers.filter { $0.key.lowercased() != "authorization" }
    }
}

extension BADownload {
    /// Creates the download of a task.
    static func made(of task: TransferTask, for group: ApplicationGroupID) -> BADownload {
        let note = DownloadNote(task)
        var wire = ExtensionURLDownload(
            identifier: note.identifier,
            url: task.request.url,
            fileSize: Int(task.request.size?.rawValue ?? 0),
            applicationGroup: group
        )
        wire.priority = note.priority
        wire.headers = task.request.headersOfApplication
        let state: State =
            switch task.state {
            case .suspended, .waiting: .waiting
            case .running: .downloading
            case .completed: .finished
            case .failed, .cancelled: .failed
            }
        return BAURLDownload(wire: wire, state: state, uniqueIdentifier: note.uniqueIdentifier)
    }
}

extension TransferTask {
    /// Indicates whether the task has not ended.
    var isUnfinished: Bool { !hasEnded }
}
