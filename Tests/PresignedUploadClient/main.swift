import BackgroundTransfer
import Foundation

/// Uploads a file in presigned parts, and prints what happens, a line for each event.
///
///     presigned-upload-client SOCKET begin FILE PART-SIZE ORIGIN
///     presigned-upload-client SOCKET watch
///
/// The first form prints "stored" once the daemon has the task. Either ends with the session, after its last task.

/// A delegate that prints how the upload ends.
final class Printer: NSObject, URLSessionTaskDelegate {
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {
        let status = (task.response as? HTTPURLResponse)?.statusCode ?? 0
        say("completed \(error?.localizedDescription ?? "well"), status \(status)")
    }

    func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?) {
        exit(error == nil ? 0 : 1)
    }
}

/// Prints a line at once, to a file too.
func say(_ line: String) { FileHandle.standardOutput.write(Data("\(line)\n".utf8)) }

/// The requests that the tests' server takes for a file of a size.
func requests(for size: Int64, part: Int64, origin: String) -> URLSession.PresignedParts? {
    func url(_ target: String) -> URL? { URL(string: "\(origin)\(target)signature=secret") }
    let starts = stride(from: 0, to: size, by: Int64.Stride(part))
    let parts = starts.enumerated()
        .compactMap { index, start in
            url("/part?number=\(index + 1)&")
                .map { URLSession.PresignedParts.Part(url: $0, size: min(part, size - start)) }
        }
    guard let completion = url("/complete?") else { return nil }
    return URLSession.PresignedParts(
        parts: parts,
        completionURL: completion,
        abortURL: url("/abort?")
    )
}

let arguments = Array(CommandLine.arguments.dropFirst())
guard arguments.count >= 2 else { fatalError("expected a socket and what to do") }
let configuration = URLSessionConfiguration.background(withIdentifier: "presigned")
configuration.serviceSocketPath = arguments[0]
let session = URLSession(configuration: configuration, delegate: Printer(), delegateQueue: nil)
if arguments[1] == "begin" {
    let file = URL(fileURLWithPath: arguments[2])
    let size = try FileManager.default.attributesOfItem(atPath: file.path)[.size] as? Int64
    guard let size, let part = Int64(arguments[3]),
        let parts = requests(for: size, part: part, origin: arguments[4])
    else { fatalError("expected a size and an origin") }
    let task = session.uploadTask(withPresignedParts: parts, fromFile: file)
    task.resume()
    await session.flush()
    say(task.isStored ? "stored" : "not stored")
} else {
    say("found \(await session.allTasks.count)")
}
session.finishTasksAndInvalidate()
while true { try await Task.sleep(for: .seconds(3600)) }
