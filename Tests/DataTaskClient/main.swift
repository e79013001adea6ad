import BackgroundTransfer
import Foundation
import Glibc

/// Requests a URL with a task that waits for connectivity, and prints how that goes, a line for each call.
///
///     data-task-client URL [stream | without-threads]
///
/// With 'stream' the task is an upload of a stream, otherwise a data task. With 'without-threads' it requests the URL twice: first while the process may create no thread, then as usual. That
/// takes another user than root, whose threads have no limit.

/// A delegate that prints its calls.
final class Printer: NSObject, URLSessionTaskDelegate {
    /// An element for each task that has ended.
    let ends = AsyncStream.makeStream(of: Void.self)

    func urlSession(_ session: URLSession, taskIsWaitingForConnectivity task: URLSessionTask) {
        say("waiting")
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        needNewBodyStream completionHandler: @escaping @Sendable (InputStream?) -> Void
    ) {
        say("stream")
        completionHandler(InputStream(data: Data([1])))
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {
        let status = (task.response as? HTTPURLResponse)?.statusCode ?? 0
        say("completed \((error as? URLError)?.code.rawValue ?? 0), status \(status)")
        ends.continuation.yield()
    }
}

/// Prints a line at once, to a pipe too.
func say(_ line: String) { FileHandle.standardOutput.write(Data("\(line)\n".utf8)) }

/// Sets the number of processes and threads of the user after which the process may create none; `nil` for the most.
func limitThreads(to count: UInt?) {
    var limit = rlimit()
    let processes = __rlimit_resource_t(__RLIMIT_NPROC.rawValue)
    guard unsafe getrlimit(processes, &limit) == 0 else { fatalError("the limit is unknown") }
    limit.rlim_cur = count ?? limit.rlim_max
    if unsafe setrlimit(processes, &limit) != 0 { fatalError("the limit cannot be set") }
}

let arguments = Array(CommandLine.arguments.dropFirst())
guard let url = arguments.first.flatMap({ URL(string: $0) }) else { fatalError("expected a URL") }
let option = arguments.dropFirst().first
let printer = Printer()
let configuration = URLSessionConfiguration.ephemeral
configuration.waitsForConnectivity = true
let session = URLSession(configuration: configuration, delegate: printer, delegateQueue: nil)
if option == "without-threads" {
    // Starts the threads of the delegate queue and of the tasks before the limit is set.
    await withDiscardingTaskGroup { group in
        for _ in 0..<8 { group.addTask { usleep(20_000) } }
    }
    await withCheckedContinuation { continuation in
        session.delegateQueue.addOperation { continuation.resume() }
    }
    limitThreads(to: 1)
    session.dataTask(with: url).resume()
    for await _ in printer.ends.stream { break }
    limitThreads(to: nil)
}
let task: URLSessionDataTask =
    option == "stream"
    ? session.uploadTask(withStreamedRequest: URLRequest(url: url)) : session.dataTask(with: url)
task.resume()
for await _ in printer.ends.stream { break }
