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

    @Option(
        help: ArgumentHelp(
            "The maximum rate of sending in bytes per second, as 500kB, 4MB or 4MiB.",
            valueName: "rate"
        ),
        transform: ByteRate.parse
    )
    var rate: ByteCount?

    @Option(
        help: ArgumentHelp(
            "Close the connection after this many bytes of the first body for each path.",
            valueName: "size"
        ),
        transform: ByteSize.parse
    )
    var dropAfter: ByteCount?

    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    var messages: MessageOptions? { messageOptions }
    var quiet: Bool { messageOptions.quiet }
    var printsJSON: Bool { false }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let origin: Origin
        do throws(OriginError) {
            // Disables the server's log, which contains only messages about its shutdown; the command prints
            // the accesses.
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
        // An interruption is the regular end of the server.
        guard interruption == nil, case .failure(let error) = result else { return .success }
        if let error = error as? OriginError { throw CommandFailure(error) }
        throw .usage("the server has ended: \(error)")
    }

    private var originConfiguration: OriginConfiguration {
        var configuration = OriginConfiguration()
        configuration.host = host
        configuration.port = Int(port)
        configuration.bytesPerSecond = rate
        configuration.dropAfter = dropAfter
        if !quiet { configuration.onAccess = Self.printAccess }
        return configuration
    }

    private static func printAccess(_ record: AccessRecord) {
        let path = record.path.forDisplay()
        let line = "\(record.method) \(path) \(record.status) \(record.bytes.rawValue)\n"
        // Ignores a closed standard error.
        _ = try? FileDescriptor.standardError.writeAll(line.utf8)
    }
}
