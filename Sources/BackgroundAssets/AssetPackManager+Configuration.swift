public import Foundation
import Glibc
import StageContainer
import StageModel
public import StagePack
import StageSystem
public import SystemPackage

extension AssetPackManager {
    /// What an application's property list says on Apple's systems: which packs are its own.
    public struct Configuration: Sendable {
        enum Origin: Sendable {
            case application(String)
            case manifest(group: String, url: String)
        }

        let origin: Origin
        /// The containers to read instead of the group's, in this order; the first is where fetched packs
        /// go.
        ///
        /// `nil` stands for the user's container of the group, then the system's.
        public var containers: [FilePath]?
        /// Which pack wins where several have a file at one path: those named here, in this order, then
        /// the others by name.
        public var precedence: [String] = []
        /// What fetches packs; `nil` for the `stagepack` command.
        public var fetcher: (any PackFetcher)?

        /// Names an application that its package has registered (`stagepack app`): the registration says
        /// where its manifest is, and its group.
        public init(application: String) { origin = .application(application) }

        /// Names the group and the manifest of an application that is not registered.
        public init(applicationGroup: String, manifestURL: URL) {
            origin = .manifest(group: applicationGroup, url: manifestURL.absoluteString)
        }
    }

    /// Why a manager does not know which packs are the application's.
    public indirect enum ConfigurationError: Error, Hashable, Sendable {
        /// Neither a configuration nor `STAGEPACK_APP` in the environment names an application.
        case missing
        /// The configuration cannot be used, for this reason.
        case invalid(String)
    }
}

extension AssetPackManager.ConfigurationError: LocalizedError, CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .missing:
            "the application is not known: set 'AssetPackManager.shared.configuration', or "
                + "STAGEPACK_APP in the environment"
        case .invalid(let reason): reason
        }
    }

    /// The reason, as a sentence fragment a person can read.
    public var errorDescription: String? { description }
}

extension AssetPackManager.Configuration {
    typealias Failure = AssetPackManager.ConfigurationError

    /// Finds what the configuration stands for, on a machine with this environment.
    func source(environment: [String: String]) throws(Failure) -> PackSource {
        let (group, catalogue) = try groupAndCatalogue(environment)
        let origin: CommandFetcher.Source =
            switch catalogue {
            case .application(let id): .application(id)
            case .manifest(let url): .manifest(url: url)
            }
        let store = PackStore(
            containers: containers
                ?? ContainerLocations.forReading(group, environment: environment),
            precedence: try precedence.map { name throws(Failure) in
                try Self.value("precedence") { () throws(ValueError) in try PackID(name) }
            },
            fetcher: fetcher ?? CommandFetcher(source: origin)
        )
        return PackSource(store: store, catalogue: catalogue)
    }

    private func groupAndCatalogue(
        _ environment: [String: String]
    ) throws(Failure) -> (ApplicationGroupID, PackSource.Catalogue) {
        switch origin {
        case .application(let text):
            let id = try Self.value("application") { () throws(ValueError) in
                try ApplicationID(text)
            }
            return (try Self.registration(of: id, environment).group, .application(id))
        case .manifest(let text, let url):
            let group = try Self.value("application group") { () throws(ValueError) in
                try ApplicationGroupID(text)
            }
            return (group, .manifest(url: url))
        }
    }

    private static func value<Value>(
        _ name: String,
        _ body: () throws(ValueError) -> Value
    ) throws(Failure) -> Value {
        do throws(ValueError) {
            return try body()
        } catch {
            throw .invalid("\(name): \(error)")
        }
    }

    private static func registration(
        of id: ApplicationID,
        _ environment: [String: String]
    ) throws(Failure) -> Registration {
        let folders = RegistrationLocations.folders(environment: environment)
        guard let path = RegistrationLocations.files(of: id, in: folders).last else {
            let names = folders.map { "'\($0)'" }.joined(separator: ", ")
            throw .invalid("application '\(id)' is not registered in \(names)")
        }
        do throws(RegistrationError) {
            return try Registration(file: path)
        } catch {
            throw .invalid("\(error)")
        }
    }
}
