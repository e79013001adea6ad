// Apple's framework exports these modules, and its users rely on that.
@_exported public import ExtensionFoundation
@_exported public import Foundation
@_exported public import FoundationNetworking
@_exported public import SystemPackage
