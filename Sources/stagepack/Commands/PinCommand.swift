import ArgumentParser
import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StagePack
import StagingService
import SystemPackage

struct PinCommand: ChangingSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "pin",
        abstract: "Pin a pack to its staged version, or list the pinned packs.",
        discussion: """
            A pack that is pinned is not updated, repaired with other content, evicted or removed, \
            until '--release', or until 'gc --unregistered' finds its application removed. Uses no \
            network.
            """
    )

    @Argument(
        help: "The pack. Default: list the pinned packs.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var pack: PackID?

    @Argument(help: "The version that the staged pack must have.")
    var version: Int?

    @Flag(help: "Release the pin, so that runs update the pack again.")
    var release = false

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    var changesPacks: Bool { pack != nil }

    mutating func validate() throws {
        if release, pack == nil { throw ValidationError("--release needs a pack.") }
        if release, version != nil {
            throw ValidationError("--release cannot be combined with a version.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source)
        if release, let pack { try session.checkPinIsOurs(pack) }
        if !release, let pack { try session.checkOwnCopy(of: pack, for: "pin") }
        guard let container = try session.existingContainer() else {
            if let pack { throw .notStaged(pack) }
            Console.print(PinReport(), asJSON: json)
            return .success
        }
        do throws(ContainerError) {
            guard let pack else {
                let pins = try container.reader.pins().sorted { $0.key < $1.key }
                let report = PinReport(pins: pins.map { PinStatus(of: $0.key, pin: $0.value) })
                Console.print(report, asJSON: json)
                return .success
            }
            guard let lock = try container.attemptLock(pack) else { throw .busy(pack) }
            if release {
                let version = try container.release(lock)?.version
                let report = PinReport(released: [ReleaseReport(pack: pack, version: version)])
                Console.print(change: report, asJSON: json)
            } else {
                let now = Int64(Date().timeIntervalSince1970)
                let pin = try container.pin(lock, version: version, now: now)
                let report = PinReport(pins: [PinStatus(of: pack, pin: pin)])
                Console.print(change: report, asJSON: json)
            }
            return .success
        } catch {
            var failure = CommandFailure(error)
            if case .otherVersion(let id, let wanted, let staged) = error {
                failure.hint = Self.hint(for: wanted, insteadOf: staged, of: id, in: container)
            }
            throw failure
        }
    }

    /// Returns the command that stages the wanted version instead of another one; `nil` if none does.
    private static func hint(
        for wanted: Int,
        insteadOf staged: Int,
        of id: PackID,
        in container: Container
    ) -> String? {
        let source = HintSource.current
        // A container that cannot be read has no other version, and no pin.
        let previous = try? container.reader.previousGeneration(of: id)
        if previous?.content?.version == wanted {
            return source.local("rollback", id.text).map { "run \($0) for version \(wanted)" }
        }
        // No run updates a pinned pack.
        guard wanted > staged, (try? container.reader.pin(of: id)) == nil else { return nil }
        return source.staging("fetch", id.text).map { "run \($0) for the newest version" }
    }
}

extension Session {
    /// Refuses to release a pin in a container that this user cannot change, such as the system's.
    fileprivate func checkPinIsOurs(_ pack: PackID) throws(CommandFailure) {
        let foreign: FilePath?
        let view = try view()
        do throws(ContainerError) {
            let copy = try view.copiesWithPins(of: pack).first { $0.pin != nil }
            foreign = copy.map { view.containers[$0.container] }
        } catch {
            throw CommandFailure(error)
        }
        guard let foreign, foreign != knownContainer else { return }
        throw CommandFailure(
            status: .containerUnusable,
            message: "pack '\(pack)': it is pinned in '\(foreign)', which this user cannot change",
            hint: hints.local("pin", "--release", pack.text).map { "as root, run \($0)" },
            retryAdvice: .never
        )
    }
}

/// Output of `pin`.
struct PinReport: Encodable, CustomStringConvertible {
    /// The pinned packs, or the pack that was just pinned.
    var pins: [PinStatus] = []
    /// The packs whose pins were released.
    var released: [ReleaseReport] = []

    var description: String {
        (pins.map(\.description) + released.map(\.description)).joined(separator: "\n")
    }
}

/// The pin of a pack, as `pin`, `status` and `why` print it.
struct PinStatus: Codable, CustomStringConvertible {
    var pack: PackID
    /// The pinned version.
    var version: Int
    var since: Date
    /// The version that a rollback has replaced; `nil` if a person pinned the pack.
    var rolledBackFrom: Int?

    init(of pack: PackID, pin: Pin) {
        self.pack = pack
        version = pin.version
        since = Date(timeIntervalSince1970: Double(pin.pinnedAt))
        rolledBackFrom = pin.replaced?.content?.version
    }

    /// The pin, as a fragment.
    var text: String {
        "\(Planner.PinnedVersion(version: version, rolledBackFrom: rolledBackFrom))"
    }

    var description: String { "\(pack): \(text), since \(InternetTime(since).text)" }
}

/// Output of `pin --release` for one pack.
struct ReleaseReport: Codable, CustomStringConvertible {
    var pack: PackID
    /// The version that was pinned; `nil` if the pack was not pinned.
    var version: Int?

    var description: String {
        version.map { "\(pack): no longer pinned to version \($0)" } ?? "\(pack): was not pinned"
    }
}
