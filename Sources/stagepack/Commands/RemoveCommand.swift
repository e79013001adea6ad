import ArgumentParser
import StageContainer
import StageModel

struct RemoveCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Remove staged packs.",
        discussion: """
            An application that has a pack open keeps reading it; the next 'gc' after the \
            application has ended removes its files.
            """
    )

    @Argument(help: "The packs.", transform: PackArgument.parse)
    var packs: [PackID]

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let container = try Session(source).existingContainer(for: .makingRoom)
        var reports: [RemovalReport] = []
        for id in packs {
            do throws(ContainerError) {
                guard let lock = try container.attemptLock(id) else { throw .busy(id) }
                if let pin = try container.reader.pin(of: id) {
                    throw .pinned(id, version: pin.version)
                }
                reports.append(RemovalReport(pack: id, removal: try container.remove(lock)))
            } catch {
                throw CommandFailure(error)
            }
        }
        container.keepSpareLock()
        Console.print(Listing(elements: reports), asJSON: json)
        return .success
    }
}

/// What `remove` prints of one pack.
struct RemovalReport: Codable, CustomStringConvertible {
    var pack: PackID
    var generationsRemoved: Int
    var generationsInUse: Int
    /// Whether single files of it were here.
    var singleFilesRemoved: Bool?

    init(pack: PackID, removal: Removal) {
        self.pack = pack
        generationsRemoved = removal.generations
        generationsInUse = removal.inUse
        if removal.leftovers > 0 { singleFilesRemoved = true }
    }

    var description: String {
        if generationsInUse > 0 { return "\(pack): removed once its readers have ended" }
        let isGone = generationsRemoved > 0 || singleFilesRemoved == true
        return isGone ? "\(pack): removed" : "\(pack): was not staged"
    }
}
