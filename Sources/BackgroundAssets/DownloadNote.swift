import Foundation
import StageControl
import StageExtension
import StageModel

/// What the daemon keeps with a task of a download that a request has no member for, so that every
/// process of the application finds the same download.
struct DownloadNote: Hashable, Codable {
    /// What the application calls the download.
    var identifier: String
    /// What tells the download from another one of the same identifier.
    var uniqueIdentifier: String
    /// The application's number, which the daemon's scale of priorities is too coarse for.
    var priority: Int
    /// Whether somebody waits for the download, so that it fails instead of being tried again.
    var isForeground = false

    /// Creates the note of a download.
    init(_ download: BADownload) {
        identifier = download.identifier
        uniqueIdentifier = download.uniqueIdentifier
        priority = download.priority.rawValue
    }

    /// Reads the note of a task; what no application of this kind has made is named by its token.
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

    /// The text that the daemon keeps.
    var text: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        // Texts and a number can be written always.
        return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }
}

extension TransferRequest {
    /// Makes the request of a download.
    init(_ download: ExtensionURLDownload, _ note: DownloadNote) {
        self.init(token: UUID().uuidString, kind: .download, url: download.url)
        size = ByteCount(Int64(download.fileSize))
        headers = download.headers.isEmpty ? nil : download.headers
        description = note.text
        let lowest = BADownload.Priority.min.rawValue
        let highest = BADownload.Priority.max.rawValue
        let number = min(max(note.priority, lowest), highest)
        priority = Double(number - lowest) / Double(highest - lowest)
    }
}

extension BADownload {
    /// Makes the download of a task.
    static func made(of task: TransferTask, for group: ApplicationGroupID) -> BADownload {
        let note = DownloadNote(task)
        var wire = ExtensionURLDownload(
            identifier: note.identifier,
            url: task.request.url,
            fileSize: Int(task.request.size?.rawValue ?? 0),
            applicationGroup: group
        )
        wire.priority = note.priority
        wire.headers = task.request.headers ?? [:]
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
    /// Whether the task goes on.
    var isUnfinished: Bool { ![.completed, .failed, .cancelled].contains(state) }
}
