import ArgumentParser
import Dispatch
import Glibc
import Logging
import StageModel
import StageOrigin
import SystemPackage

/// Serves a directory on this machine, for developing and testing an application.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Serve a directory over HTTP, for development.",
        discussion: """
            Prints the URL of the directory when it can be reached, and a line for each request on \
            standard error. Ends on an interrupt.
            """
    )

    @Argument(help: "The directory to serve.", completion: .directory)
    var directory: String

    @Option(help: "The name or address to listen on.")
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 lets the system choose one.")
    var port: UInt16 = 0

    @Option(help: ArgumentHelp("Send this many bytes a second at most.", valueName: "bytes"))
    var rate: Int?

    @Option(
        help: ArgumentHelp(
            "Close the connection after this many bytes of the first body for each path.",
            valueName: "bytes"
        )
    )
    var dropAfter: Int?

    @Flag(help: "Do not print a line for each request.")
    var quiet = false

    func validate() throws {
        if let rate, rate < 1 { throw ValidationError("'--rate' must be at least 1.") }
        if let dropAfter, dropAfter < 0 {
            throw ValidationError("'--drop-after' must not be negative.")
        }
    }

    func run() async throws {
        let origin = try Origin(
            FilePath(directory),
            configuration: originConfiguration,
            logger: Logger(label: "stagepack.origin", factory: quietLog)
        )
        try await untilInterrupted {
            try await origin.run { address in
                print(address.baseURL)
                // Whoever reads the URL through a pipe waits for it.
                fflush(nil)
            }
        }
    }

    private var originConfiguration: OriginConfiguration {
        var configuration = OriginConfiguration()
        configuration.host = host
        configuration.port = Int(port)
        configuration.bytesPerSecond = rate.map { ByteCount($0) }
        configuration.dropAfter = dropAfter.map { ByteCount($0) }
        if !quiet { configuration.onAccess = Self.printAccess }
        return configuration
    }

    private static func printAccess(_ record: AccessRecord) {
        let path = record.path.forDisplay()
        let line = "\(record.method) \(path) \(record.status) \(record.bytes.rawValue)\n"
        // There is nobody to tell when standard error is closed.
        _ = try? FileDescriptor.standardError.writeAll(line.utf8)
    }
}

/// Shows only what went wrong, on standard error.
private func quietLog(_ label: String) -> any LogHandler {
    var handler = StreamLogHandler.standardError(label: label)
    handler.logLevel = .error
    return handler
}

/// Runs `work`, and cancels it when the process is interrupted or asked to end.
private func untilInterrupted(
    _ work: @escaping @Sendable () async throws -> Void
) async throws {
    let (signals, received) = AsyncStream.makeStream(of: CInt.self)
    let sources = [SIGINT, SIGTERM].map { number in
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: number)
        source.setEventHandler { received.yield(number) }
        source.activate()
        return source
    }
    defer { for source in sources { source.cancel() } }
    try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await work() }
        group.addTask { for await _ in signals { return } }
        defer { group.cancelAll() }
        _ = try await group.next()
    }
}
