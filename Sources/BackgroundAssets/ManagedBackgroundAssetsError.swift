public import Foundation
public import StagePack
public import SystemPackage

/// An error for a pack or file that does not exist.
///
/// Other errors of ``AssetPackManager`` are ``AssetPackManager/ConfigurationError``,
/// ``AssetPackManager/LocalAvailabilityError``, `CancellationError`, errors of the system where a staged file cannot be
/// read, and `PackStoreError` of the module `StagePack`, whose `retryAdvice` says whether to retry.
@nonexhaustive(warn)
public indirect enum ManagedBackgroundAssetsError: Error, Hashable, Sendable {
    /// No pack has this id.
    case assetPackNotFound(withID: String)
    /// No staged pack has a file at the path, or the path leaves the packs.
    case fileNotFound(at: FilePath)
}

extension ManagedBackgroundAssetsError: LocalizedError, CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    public var description: String {
        switch self {
        case .assetPackNotFound(let id): "there is no asset pack '\(id)'"
        case .fileNotFound(let path): "no staged asset pack has a file at '\(path)'"
        }
    }

    /// A lower-case sentence fragment for people.
    public var errorDescription: String? { description }
}

extension PackStoreError: LocalizedError {
    /// A lower-case sentence fragment for people.
    public var errorDescription: String? { description }
}
