import BackgroundTransfer
import Foundation

/// Starts transfers, lists them, and takes them in; the daemon starts it too, when all have ended.
@main
struct BackgroundDownloads {
    private static let usage = """
        usage: background-downloads get URL ...   start downloads, and end at once
               background-downloads put FILE URL  start an upload, and end at once
               background-downloads list          list what is under way
               background-downloads pause NUMBER FILE
                                                  end a download so that it can be resumed
               background-downloads resume FILE   go on with a download, and end at once
               background-downloads watch         take events in until nothing is under way

        Finished downloads are in DOWNLOADS_FOLDER, or else in
        $XDG_DATA_HOME/background-downloads.
        """

    static func main() async {
        do {
            try await run()
        } catch {
            FileHandle.standardError.write(Data("background-downloads: \(error)\n".utf8))
            exit(1)
        }
    }

    private static func run() async throws {
        let store = DownloadStore(folder: folder)
        if try await BackgroundLaunch.handle(by: store) { return }
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch (arguments.first, arguments.count) {
        case ("get", 2...):
            for url in arguments.dropFirst().compactMap(URL.init(string:)) {
                print(store.download(url))
            }
        case ("put", 3):
            guard let url = URL(string: arguments[2]) else { break }
            print(store.upload(URL(fileURLWithPath: arguments[1]), to: url))
        case ("list", 1):
            for task in await store.connect().allTasks {
                print(
                    task.taskIdentifier,
                    task.taskDescription ?? "-",
                    task.countOfBytesReceived,
                    task.pendingReasons.map(\.kind.rawValue).joined(separator: ",")
                )
            }
        case ("pause", 3):
            let data = await withCheckedContinuation { continuation in
                store.pause(Int(arguments[1]) ?? 0) { continuation.resume(returning: $0) }
            }
            guard let data else { return print("it cannot be resumed") }
            try data.write(to: URL(fileURLWithPath: arguments[2]))
        case ("resume", 2):
            print(store.resume(try Data(contentsOf: URL(fileURLWithPath: arguments[1]))))
        case ("watch", 1):
            _ = await store.connect().allTasks
            store.finish()
            // The store ends the process when the session is invalid.
            while true { try await Task.sleep(for: .seconds(3600)) }
        default: print(usage)
        }
    }

    /// The folder of finished downloads.
    ///
    /// The daemon launches this program without arguments and with the user's folders, so a launched process finds
    /// the same one.
    private static var folder: URL {
        if let path = ProcessInfo.processInfo.environment["DOWNLOADS_FOLDER"] {
            return URL(fileURLWithPath: path)
        }
        return FileManager.default
            .urls(for: .applicationSupportDirectory, in: .userDomainMask)[0]
            .appendingPathComponent("background-downloads")
    }
}
