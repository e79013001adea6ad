public import Foundation
import Glibc
import StageContainer
import StageModel
public import StagePack
import StageSystem
public import SystemPackage

extension AssetPackManager {
    /// The configuration that Apple's systems read from an application's property list: the source of its
    /// packs.
    public struct Configuration: Sendable {
        enum Origin: Sendable {
            case application(String)
            case manifest(group: String, url: String)
        }

        let origin: Origin
        /// The containers to read instead of the group's, in this order; downloads go to the first one.
        ///
        /// `nil` stands for the user's container of the group, then the system's.
        public var containers: [FilePath]?
        /// The order in which packs are searched for a path that several contain: the packs named here, in
        /// this order, then the others by name.
        public var precedence: [String] = []
        /// The downloader of packs; `nil` for the `stagepack` command.
        public var fetcher: (any PackFetcher)?

        /// Creates the configuration of a registered application (`stagepack app`), whose registration names
        /// its manifest and group.
        public init(application: String) { origin = .application(application) }

        /// Creates the configuration of an application that is not registered, from its group and manifest.
        public init(applicationGroup: String, manifestURL: URL) {
            origin = .manifest(group: applicationGroup, url: manifestURL.absoluteString)
        }
    }

    /// The reason why a manager does not know the application's packs.
    @nonexhaustive
    public indirect enum ConfigurationError: Error, Hashable, Sendable {
        /// Neither a configuration nor the environment variable `STAGEPACK_APP` names an application.
        case missing
        /// The configuration is invalid, for this reason.
        case invalid(String)
    }
}

extension AssetPackManager.ConfigurationError: LocalizedError, CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    public var description: String {
        switch self {
        case .missing:
            "the application is not known: set 'AssetPackManager.shared.configuration', or "
                + "STAGEPACK_APP in the environment"
        case .invalid(let reason): reason
        }
    }

    /// A lower-case sentence fragment for people.
    public var errorDescription: String? { description }
}

extension AssetPackManager.Configuration {
    typealias Failure = AssetPackManager.ConfigurationError

    /// Resolves the configuration on a machine with this environment.
    func source(environment: [String: String]) throws(Failure) -> PackSource {
        let (group, catalogue) = try groupAndCatalogue(environment: environment)
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
        return PackSource(
            store: store,
            catalogue: catalogue,
            registrations: RegistrationLocations.folders(environment: environment)
        )
    }

    private func groupAndCatalogue(
        environment: [String: String]
    ) throws(Failure) -> (ApplicationGroupID, PackSource.Catalogue) {
        switch origin {
        case .application(let text):
            let id = try Self.value("application") { () throws(ValueError) in
                try ApplicationID(text)
            }
            return (try Self.registration(of: id, environment: environment).group, .application(id))
        case .manifest(let text, let url):
            let group = try Self.value("application group") { () throws(ValueError) in
                try ApplicationGroupID(text)
            }
            return (group, .manifest(url: url))
        }
    }

    private static func value<Value>(
        _ name: String,
        body: () throws(ValueError) -> Value
    ) throws(Failure) -> Value {
        do throws(ValueError) {
            return try body()
        } catch {
            throw .invalid("\(name): \(error)")
        }
    }

    private static func registration(
        of id: ApplicationID,
        environment: [String: String]
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
