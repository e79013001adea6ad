import ArgumentParser
import Logging
import StageModel
import StageOrigin
import SystemPackage

/// Serves a directory on this machine, for developing and testing an application.
struct ServeCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Serve a directory over HTTP, for development.",
        discussion: """
            Prints the URL of the directory when it can be reached, and a line for each request on \
            standard error. A WebSocket at '/.stagepack/echo' sends each message back. Ends on an \
            interrupt.
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

    var printsJSON: Bool { false }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let origin: Origin
        do throws(OriginError) {
            // The command's own log: the server's has only what stopping it looks like from within.
            origin = try Origin(
                FilePath(directory),
                configuration: originConfiguration,
                logger: Logger(label: "stagepack.origin") { _ in SwiftLogNoOpLogHandler() }
            )
        } catch {
            throw CommandFailure(error)
        }
        let (result, interruption) = await withInterruption(after: nil) {
            () async -> Result<Void, any Error> in
            do {
                try await origin.run { address in Console.say(address.baseURL) }
                return .success(())
            } catch {
                return .failure(error)
            }
        }
        // That it ends when it is told to is what it is for.
        guard interruption == nil, case .failure(let error) = result else { return .success }
        if let error = error as? OriginError { throw CommandFailure(error) }
        throw .usage("the server has ended: \(error)")
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
