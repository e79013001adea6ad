import BackgroundTransfer
import Foundation
import Synchronization

/// The episodes that are here or being downloaded; written for iOS, but for the first line.
final class EpisodeStore: NSObject, URLSessionDownloadDelegate {
    static let shared = EpisodeStore()
    static let identifier = "com.example.podcast-downloader"

    /// The completion handler of a launch in the background.
    let finishEvents = Mutex<(@Sendable () -> Void)?>(nil)
    private let session = Mutex<URLSession?>(nil)

    /// The folder of the episodes.
    var folder: URL {
        FileManager.default.urls(for: .applicationSupportDirectory, in: .userDomainMask)[0]
            .appendingPathComponent("podcast-downloader")
    }

    /// Creates the session, or recreates it after a restart of the process.
    func connect() -> URLSession {
        session.withLock { session in
            if let session { return session }
            let configuration = URLSessionConfiguration.background(withIdentifier: Self.identifier)
            configuration.sessionSendsLaunchEvents = true
            let new = URLSession(configuration: configuration, delegate: self, delegateQueue: nil)
            session = new
            return new
        }
    }

    /// Starts downloads of the episodes that are neither downloaded nor being downloaded, and returns their number.
    func download(_ episodes: [Episode]) async -> Int {
        let session = connect()
        let known = await session.allTasks.compactMap(\.taskDescription)
        let missing = episodes.filter { episode in
            let file = folder.appendingPathComponent(episode.fileName)
            return !known.contains(episode.fileName)
                && !FileManager.default.fileExists(atPath: file.path)
        }
        for episode in missing {
            let task = session.downloadTask(with: episode.url)
            task.taskDescription = episode.fileName
            task.resume()
        }
        await session.flush()
        return missing.count
    }

    /// The names of the downloaded episodes.
    func files() throws -> [String] {
        guard FileManager.default.fileExists(atPath: folder.path) else { return [] }
        return try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted()
    }

    /// Waits until no download is running.
    func waitForDownloads() async {
        while await !connect().allTasks.isEmpty { try? await Task.sleep(for: .seconds(1)) }
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    ) {
        // An error page is a file, too; a resumed download has the status 206.
        guard let response = downloadTask.response as? HTTPURLResponse,
            (200..<300).contains(response.statusCode), let name = downloadTask.taskDescription
        else { return }
        do {
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            let target = folder.appendingPathComponent(name)
            try? FileManager.default.removeItem(at: target)
            try FileManager.default.moveItem(at: location, to: target)
        } catch {
            print("\(name): cannot be moved: \(error)")
        }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {
        let name = task.taskDescription ?? "-"
        let status = (task.response as? HTTPURLResponse)?.statusCode
        print("\(name): \(error?.localizedDescription ?? "status \(status ?? 0)")")
    }

    func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession) {
        finishEvents.withLock { handler in
            handler?()
            handler = nil
        }
    }
}
