import ArgumentParser
import FoundationEssentials
import StageEngine
import StageModel
import StagePublish
import StageSystem
import SystemPackage

struct StoreCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store",
        abstract: "Keep a store of indexed packs.",
        subcommands: [StoreVerifyCommand.self, StoreCollectCommand.self]
    )
}

struct StoreCollectCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "gc",
        abstract: "Remove the objects of a store that no manifest names any longer.",
        discussion: """
            Name every manifest that is published and has packs in the store. An object that none of them names \
            stays for the time of '--keep' after it was first found so, since clients may have an older manifest; \
            so this is to be run from time to time, after publishing. Nothing is removed if an index that a \
            manifest names is missing or damaged. Copies of the manifest that are signed count with it. Other files of the store are left alone.
            """
    )

    @Argument(
        help: "The store: the directory with the folders 'i' and 'b'.",
        completion: .directory
    )
    var store: String

    @Option(
        help: ArgumentHelp(
            "A manifest that is published; may be given more than once.",
            valueName: "file"
        ),
        completion: .file()
    )
    var manifest: [String]

    @Option(
        help: ArgumentHelp(
            "The time for which an unused object is kept, as 12h or 30d.",
            valueName: "time"
        )
    )
    var keep = RetentionPeriod(seconds: 30 * 24 * 60 * 60)

    @Flag(help: "Print what would be removed, and change nothing.") var dryRun = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    mutating func validate() throws {
        if manifest.isEmpty {
            throw ValidationError("'store gc' needs every published manifest: pass '--manifest'.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        // Reports a manifest that cannot be read before the wait for the lock.
        _ = try ManifestFile.published(manifest)
        let directory: Directory
        do throws(FileError) {
            directory = try Directory.open(FilePath(store))
        } catch {
            throw CommandFailure(store: error)
        }
        let lock: StoreLock
        do throws(FileError) {
            lock = try await StoreLock(alone: directory, isDryRun: dryRun)
        } catch {
            if Task.isCancelled { throw CommandFailure(StageError.cancelled) }
            if StoreLock.isWithoutLocks(error) {
                throw CommandFailure(StoreGarbageCollectionError.withoutLocks(directory.path))
            }
            throw CommandFailure(StoreGarbageCollectionError.file(error))
        }
        // A run that held the lock may have been about to offer a version.
        let manifests = try ManifestFile.published(manifest)
        let collection: StoreGarbageCollection
        do throws(StoreGarbageCollectionError) {
            collection = try StoreGarbageCollection.collect(
                directory,
                holding: lock,
                keeping: manifests,
                for: keep.seconds,
                now: Int64(Date().timeIntervalSince1970),
                isDryRun: dryRun
            )
        } catch {
            throw CommandFailure(error)
        }
        _ = consume lock
        let report = StoreReport(collection, isDryRun: dryRun)
        if dryRun {
            Console.print(report, asJSON: json)
        } else {
            Console.print(change: report, asJSON: json)
        }
        return .success
    }
}

/// A duration on the command line: a whole number of seconds, minutes, hours or days.
struct RetentionPeriod: ExpressibleByArgument, CustomStringConvertible {
    let seconds: Int64

    private static let units: [Character: Int64] = ["s": 1, "m": 60, "h": 3600, "d": 86400]

    init(seconds: Int64) { self.seconds = seconds }

    init?(argument: String) {
        let unit = argument.last.flatMap { Self.units[$0] }
        guard let number = Int64(unit == nil ? argument[...] : argument.dropLast()), number >= 0
        else { return nil }
        // A unit is required: a bare number could mean days or seconds.
        guard unit != nil || number == 0 else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit ?? 1)
        guard !overflow else { return nil }
        seconds = product
    }

    var description: String { seconds % 86400 == 0 ? "\(seconds / 86400)d" : "\(seconds)s" }

    var defaultValueDescription: String { description }
}

/// Output of `store gc`.
private struct StoreReport: Encodable, CustomStringConvertible {
    var removed: Objects
    var waiting: Objects
    var used: Objects
    var packsOfOtherStores: Int
    var isDryRun: Bool

    /// Number of objects, and their bytes.
    struct Objects: Encodable, CustomStringConvertible {
        var objects: Int
        var size: ByteCount

        init(_ count: StoreGarbageCollection.Count) {
            (objects, size) = (count.objects, count.size)
        }

        var description: String { "\(objects) \(objects == 1 ? "object" : "objects") (\(size))" }
    }

    init(_ collection: StoreGarbageCollection, isDryRun: Bool) {
        removed = Objects(collection.removed)
        waiting = Objects(collection.waiting)
        used = Objects(collection.used)
        packsOfOtherStores = collection.packsOfOtherStores
        self.isDryRun = isDryRun
    }

    var description: String {
        """
        \(isDryRun ? "would remove" : "removed") \(removed)
        without use, and kept for now: \(waiting)
        in use: \(used)
        """
            + (packsOfOtherStores > 0
                ? "\nin other stores: \(packsOfOtherStores.quantity(of: "pack"))" : "")
    }
}
