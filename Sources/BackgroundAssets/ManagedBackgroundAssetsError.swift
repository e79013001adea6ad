public import Foundation
public import StagePack
public import SystemPackage

/// What was asked for and is not there.
///
/// Other failures of ``AssetPackManager`` are ``AssetPackManager/ConfigurationError``, `CancellationError`,
/// and `PackStoreError` of the module `StagePack`, whose `retryAdvice` tells when trying again makes sense.
public indirect enum ManagedBackgroundAssetsError: Error, Hashable, Sendable {
    /// There is no pack of this name.
    case assetPackNotFound(withID: String)
    /// No staged pack has a file at the path, or the path leaves the packs.
    case fileNotFound(at: FilePath)
}

extension ManagedBackgroundAssetsError: LocalizedError, CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .assetPackNotFound(let id): "there is no asset pack '\(id)'"
        case .fileNotFound(let path): "no asset pack that is here has a file at '\(path)'"
        }
    }

    /// The reason, as a sentence fragment a person can read.
    public var errorDescription: String? { description }
}

extension PackStoreError: LocalizedError {
    /// The reason, as a sentence fragment a person can read.
    public var errorDescription: String? { description }
}
