import BackgroundTransfer
import Foundation
import Synchronization

/// Downloads the episodes of a podcast in the background.
@main
struct PodcastDownloader {
    private static let usage = """
        usage: podcast-downloader get FEED    start the downloads of a feed's episodes, and end at once
               podcast-downloader watch FEED  do the same, and stay until they have ended
               podcast-downloader list        list the episodes that are here, and the downloads

        Episodes are in $XDG_DATA_HOME/podcast-downloader.
        """

    static func main() async {
        do {
            try await run()
        } catch {
            FileHandle.standardError.write(Data("podcast-downloader: \(error)\n".utf8))
            exit(1)
        }
    }

    private static func run() async throws {
        // A process that the daemon launched handles the events of the session, and ends.
        if try await BackgroundLaunch.handle(by: EpisodeStore.shared) { return }
        let store = EpisodeStore.shared
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch (arguments.first, arguments.count) {
        case ("get", 2), ("watch", 2):
            guard let url = URL(string: arguments[1]) else { return print(usage) }
            let feed = try await PodcastFeed(contentsOf: url)
            let count = await store.download(feed.episodes)
            let noun = feed.episodes.count == 1 ? "episode" : "episodes"
            print("\(feed.title): \(count) of \(feed.episodes.count) \(noun) to download")
            if arguments[0] == "watch" { await store.waitForDownloads() }
        case ("list", 1):
            for name in try store.files() { print(name) }
            for task in await store.connect().allTasks {
                print(task.taskDescription ?? "-", "\(task.countOfBytesReceived) bytes")
            }
        default: print(usage)
        }
    }
}

extension EpisodeStore: BackgroundURLSessionHandling {
    func application(
        handleEventsForBackgroundURLSession identifier: String,
        completionHandler: @escaping @Sendable () -> Void
    ) {
        finishEvents.withLock { $0 = completionHandler }
        _ = connect()
    }
}
